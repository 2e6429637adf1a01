package codec

import (
	"context"
	"regexp"
	"time"

	library "github.com/getsops/sops/v3"
	"github.com/getsops/sops/v3/age"
	"github.com/getsops/sops/v3/keyservice"
	"github.com/getsops/sops/v3/version"

	"github.com/ksctl/gitops/stacks/sops"
)

// validateRules refuses rules that SOPS would silently ignore. Only one of the two may be set,
// because a SOPS file has one rule.
func validateRules(r sops.EncryptRequest) error {
	if r.EncryptedRegex != "" && r.UnencryptedRegex != "" {
		return invalid("both encryptedRegex and unencryptedRegex are set; a SOPS file has one of the two")
	}
	if _, err := regexp.Compile(r.EncryptedRegex + r.UnencryptedRegex); err != nil {
		return invalid("encryptedRegex or unencryptedRegex is not a valid regular expression")
	}
	return nil
}

// Encrypt encrypts a plain file for age recipients (age1…). Each recipient can decrypt the result,
// with this package or with sops, and edit it with sops. The MAC covers all values, also those that
// stay plain. If the request has no expression, everything is encrypted except names with the
// suffix _unencrypted, as in SOPS. Encrypt is a [sops.Encrypter]. Every error is an [*Error].
func Encrypt(_ context.Context, r sops.EncryptRequest) (file []byte, err error) {
	defer recoverPanic(&err)
	f := r.Format
	store := storeOf(f)
	if err := checkInput(r.Data, f, store); err != nil {
		return nil, err
	}
	if err := validateRules(r); err != nil {
		return nil, err
	}
	var group library.KeyGroup
	for _, recipient := range r.Recipients {
		if err := checkRecipient(recipient); err != nil {
			return nil, err
		}
		group = append(group, &age.MasterKey{Recipient: recipient})
	}
	if len(group) == 0 {
		return nil, newError(sops.RecipientInvalid, "no recipients")
	}
	branches, err := store.LoadPlainFile(r.Data)
	if err != nil {
		return nil, invalid("the file is not valid %s", f)
	}
	for _, b := range branches {
		if store.HasSopsTopLevelKey(b) {
			return nil, invalid("the file has a top-level key %q: it is encrypted already, or SOPS would take it for "+
				"an encrypted file", "sops")
		}
	}
	tree := library.Tree{Branches: branches, Metadata: library.Metadata{
		KeyGroups: []library.KeyGroup{group}, Version: version.Version, LastModified: time.Now().UTC(),
	}}
	if f != sops.Binary { // a binary file is one value, so rules do not apply
		tree.Metadata.EncryptedRegex, tree.Metadata.UnencryptedRegex = r.EncryptedRegex, r.UnencryptedRegex
	}
	if tree.Metadata.EncryptedRegex+tree.Metadata.UnencryptedRegex == "" {
		tree.Metadata.UnencryptedSuffix = library.DefaultUnencryptedSuffix
	}
	if err := encryptTree(&tree); err != nil {
		return nil, err
	}
	if file, err = store.EmitEncryptedFile(tree); err != nil {
		return nil, newError(sops.InternalFailure, "the encrypted file can't be serialized")
	}
	if len(file) > maxBytes {
		return nil, invalid("the encrypted file has %d bytes; at most %d are allowed: split the file", len(file),
			maxBytes)
	}
	return file, nil
}

// encryptTree encrypts the values of a tree with a new data key, and the data key for the
// recipients of the tree.
func encryptTree(tree *library.Tree) error {
	services := []keyservice.KeyServiceClient{keyservice.NewCustomLocalClient(ageKeyService{})}
	key, errs := tree.GenerateDataKeyWithKeyServices(services)
	if len(errs) > 0 {
		return newError(sops.RecipientInvalid, "the data key can't be encrypted for one of the recipients")
	}
	marked, cipher, unmark := markTree(tree)
	mac, err := marked.Encrypt(key, cipher)
	unmark()
	if err != nil {
		return newError(sops.InternalFailure, "a value can't be encrypted")
	}
	tree.Metadata.MessageAuthenticationCode, err = cipher.Encrypt(mac, key,
		tree.Metadata.LastModified.Format(time.RFC3339))
	if err != nil {
		return newError(sops.InternalFailure, "the MAC can't be encrypted")
	}
	return nil
}

// ageKeyService encrypts data keys for age recipients.
type ageKeyService struct {
	keyservice.UnimplementedKeyServiceServer
}

// Encrypt implements keyservice.KeyServiceServer.
func (ageKeyService) Encrypt(_ context.Context, req *keyservice.EncryptRequest) (*keyservice.EncryptResponse, error) {
	k, ok := req.Key.KeyType.(*keyservice.Key_AgeKey)
	if !ok {
		return nil, errMissing
	}
	key := age.MasterKey{Recipient: k.AgeKey.Recipient}
	err := key.Encrypt(req.Plaintext)
	return &keyservice.EncryptResponse{Ciphertext: []byte(key.EncryptedKey)}, err
}
