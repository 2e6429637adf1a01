package sops

// Reason is a category of decryption and encryption errors.
type Reason string

// Reasons are CamelCase, so that conditions can use them.
const (
	// FileInvalid means that the file does not have the requested format, is not a SOPS file, or
	// exceeds a limit.
	FileInvalid Reason = "DecryptionFileInvalid"
	// IntegrityFailed means that the file was changed after it was encrypted: a value does not
	// decrypt, or the MAC is missing or wrong.
	IntegrityFailed Reason = "DecryptionIntegrityFailed"
	// KeyMissing means that the Secret has no key for the file.
	KeyMissing Reason = "DecryptionKeyMissing"
	// KeyInvalid means that a key of the Secret is malformed or not allowed.
	KeyInvalid Reason = "DecryptionKeyInvalid"
	// AddressRefused means that the address of a key service, or what the file requests of it, is
	// not allowed. No request is sent.
	AddressRefused Reason = "DecryptionAddressRefused"
	// ServiceFailed means that a key service can't be reached, or returns an error.
	ServiceFailed Reason = "DecryptionServiceFailed"
	// Interrupted means that the context ended.
	Interrupted Reason = "DecryptionInterrupted"
	// Unavailable means that the decryption process does not exist, or ended before it finished.
	Unavailable Reason = "DecryptionUnavailable"
	// InternalFailure means a defect in this package or a library that it uses.
	InternalFailure Reason = "DecryptionFailed"
	// RecipientInvalid means that a recipient is malformed, or that there is none.
	RecipientInvalid Reason = "EncryptionRecipientInvalid"
)

// Error is the error of decrypting and encrypting. It contains no value of a file or of a Secret,
// and is serializable.
type Error struct {
	// Reason is the category, for decisions.
	Reason Reason `json:"reason"`
	// Message states the problem, and what to do.
	Message string `json:"message"`
	// Err is the error of the context if it ended, else nil.
	Err error `json:"-"`
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the error of the context.
func (e *Error) Unwrap() error { return e.Err }

// Terminal is true if a retry with the same file and keys can't succeed.
func (e *Error) Terminal() bool {
	switch e.Reason {
	case ServiceFailed, Interrupted, Unavailable:
		return false
	}
	return true
}
