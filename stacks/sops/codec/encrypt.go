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

// EncryptOptions say what is encrypted.
type EncryptOptions struct {
	// EncryptedRegex fits the names of what is encrypted, and all below them; everything
	// but what has a name that ends in _unencrypted when it is empty, as SOPS has it.
	EncryptedRegex string
	// UnencryptedRegex fits the names of what stays plain, and all below them: what nobody
	// thought of is encrypted. A file of SOPS has one rule, so that there is one of the two.
	UnencryptedRegex string
	Limits           Limits
}

// check refuses rules that SOPS would pass over.
func (o EncryptOptions) check() error {
	if o.EncryptedRegex != "" && o.UnencryptedRegex != "" {
		return invalid("there are two rules of what is encrypted, and a file of SOPS has one")
	}
	if _, err := regexp.Compile(o.EncryptedRegex + o.UnencryptedRegex); err != nil {
		return invalid("the rule of what is encrypted is no regular expression")
	}
	return nil
}

// Encrypt makes a file of SOPS of a plain one, for age recipients (age1…): any of their owners
// can decrypt it, with this package or with sops, and edit it with sops. The MAC covers all
// values, also those that stay plain. Every error is an [*Error].
func Encrypt(data []byte, f sops.Format, recipients []string, o EncryptOptions) (file []byte, err error) {
	defer recovered(&err)
	store := storeOf(f)
	if err := readable(data, f, store, o.Limits.WithDefaults()); err != nil {
		return nil, err
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	var group library.KeyGroup
	for _, r := range recipients {
		if err := checkRecipient(r); err != nil {
			return nil, err
		}
		group = append(group, &age.MasterKey{Recipient: r})
	}
	if len(group) == 0 {
		return nil, fail(sops.RecipientInvalid, "there is no recipient to encrypt to")
	}
	branches, err := store.LoadPlainFile(data)
	if err != nil {
		return nil, invalid("it is no %s file that can be read", f)
	}
	for _, b := range branches {
		if store.HasSopsTopLevelKey(b) {
			return nil, invalid("it has an entry %q at its top already: it is encrypted, or SOPS could not tell it from one that is", "sops")
		}
	}
	tree := library.Tree{Branches: branches, Metadata: library.Metadata{
		KeyGroups: []library.KeyGroup{group}, Version: version.Version, LastModified: time.Now().UTC(),
	}}
	if f != sops.Binary { // which is one value
		tree.Metadata.EncryptedRegex, tree.Metadata.UnencryptedRegex = o.EncryptedRegex, o.UnencryptedRegex
	}
	if tree.Metadata.EncryptedRegex+tree.Metadata.UnencryptedRegex == "" {
		tree.Metadata.UnencryptedSuffix = library.DefaultUnencryptedSuffix
	}
	if err := seal(&tree); err != nil {
		return nil, err
	}
	if file, err = store.EmitEncryptedFile(tree); err != nil {
		return nil, fail(sops.Broken, "the encrypted file can't be written")
	}
	if most := o.Limits.WithDefaults().Bytes; len(file) > most {
		return nil, invalid("encrypted it has %d bytes, and at most %d are read: make several files of it", len(file), most)
	}
	return file, nil
}

// seal encrypts the values of a tree with a new key, and that for its recipients.
func seal(tree *library.Tree) error {
	services := []keyservice.KeyServiceClient{keyservice.NewCustomLocalClient(sealer{})}
	key, errs := tree.GenerateDataKeyWithKeyServices(services)
	if len(errs) > 0 {
		return fail(sops.RecipientInvalid, "the data key can't be encrypted for one of the recipients")
	}
	marked, cipher, unmark := cipherOf(tree)
	mac, err := marked.Encrypt(key, cipher)
	unmark()
	if err != nil {
		return fail(sops.Broken, "a value can't be encrypted")
	}
	tree.Metadata.MessageAuthenticationCode, err = cipher.Encrypt(mac, key, tree.Metadata.LastModified.Format(time.RFC3339))
	if err != nil {
		return fail(sops.Broken, "the MAC can't be encrypted")
	}
	return nil
}

// sealer encrypts data keys for age recipients.
type sealer struct {
	keyservice.UnimplementedKeyServiceServer
}

// Encrypt implements keyservice.KeyServiceServer.
func (sealer) Encrypt(_ context.Context, req *keyservice.EncryptRequest) (*keyservice.EncryptResponse, error) {
	k, ok := req.Key.KeyType.(*keyservice.Key_AgeKey)
	if !ok {
		return nil, errMissing
	}
	key := age.MasterKey{Recipient: k.AgeKey.Recipient}
	err := key.Encrypt(req.Plaintext)
	return &keyservice.EncryptResponse{Ciphertext: []byte(key.EncryptedKey)}, err
}
