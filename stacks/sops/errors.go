package sops

// Reason says why a file can't be decrypted or encrypted.
type Reason string

// Reasons. They are CamelCase so that they can stand in a condition.
const (
	// FileInvalid is a file that is not of its format, is none of SOPS, or exceeds
	// a limit.
	FileInvalid Reason = "DecryptionFileInvalid"
	// IntegrityFailed is a file that was changed after it was encrypted: a value
	// does not decrypt, or the MAC is missing or wrong.
	IntegrityFailed Reason = "DecryptionIntegrityFailed"
	// KeyMissing is a file for which no key was given.
	KeyMissing Reason = "DecryptionKeyMissing"
	// KeyInvalid is a key of the Secret that can't be read or is not allowed.
	KeyInvalid Reason = "DecryptionKeyInvalid"
	// AddressRefused is a key service that is not asked: its address, or what the
	// file wants of it, is not allowed.
	AddressRefused Reason = "DecryptionAddressRefused"
	// ServiceFailed is a key service that can't be reached, or refuses.
	ServiceFailed Reason = "DecryptionServiceFailed"
	// Interrupted is a context that ended first.
	Interrupted Reason = "DecryptionInterrupted"
	// Unavailable is a process for decrypting that is missing, or that ended before it
	// was done.
	Unavailable Reason = "DecryptionUnavailable"
	// Broken is a defect of this package or of a library that it uses.
	Broken Reason = "DecryptionFailed"
	// RecipientInvalid is a recipient that can't be read, or none.
	RecipientInvalid Reason = "EncryptionRecipientInvalid"
)

// Error is what decrypting and encrypting fail with. It holds no value of a file or
// of a Secret, and can be serialised.
type Error struct {
	// Reason is what is wrong; decide by it.
	Reason Reason `json:"reason"`
	// Message says what was found, and what to do.
	Message string `json:"message"`
	// Err is the error of the context, if that ended.
	Err error `json:"-"`
}

// Error says what is wrong and what to do.
func (e *Error) Error() string { return e.Message }

// Unwrap gives the error of the context.
func (e *Error) Unwrap() error { return e.Err }

// Terminal is true when the same file and keys can't work later: somebody has to
// change one of them.
func (e *Error) Terminal() bool {
	switch e.Reason {
	case ServiceFailed, Interrupted, Unavailable:
		return false
	}
	return true
}
