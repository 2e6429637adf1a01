package codec

import (
	"context"
	"crypto/subtle"
	"strings"
	"time"

	library "github.com/getsops/sops/v3"
	"github.com/getsops/sops/v3/config"
	"github.com/getsops/sops/v3/logging"
	"github.com/getsops/sops/v3/stores/dotenv"
	"github.com/getsops/sops/v3/stores/ini"
	"github.com/getsops/sops/v3/stores/json"
	yamlstore "github.com/getsops/sops/v3/stores/yaml"
	"github.com/sirupsen/logrus"

	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/sops"
)

// The library logs what it does, and with it what it was given.
func init() { logging.SetLevel(logrus.PanicLevel) }

// storeOf is what reads and writes a format; nil if there is no such format.
func storeOf(f sops.Format) library.Store {
	switch f {
	case sops.YAML:
		return yamlstore.NewStore(&config.YAMLStoreConfig{Indent: 4})
	case sops.JSON:
		return jsonStore{json.NewStore(&config.JSONStoreConfig{Indent: -1})}
	case sops.Dotenv:
		return dotenv.NewStore(&config.DotenvStoreConfig{})
	case sops.INI:
		return ini.NewStore(&config.INIStoreConfig{})
	case sops.Binary:
		return json.NewBinaryStore(&config.JSONBinaryStoreConfig{Indent: -1})
	}
	return nil
}

// Decrypt decrypts a file and checks that it is as it was encrypted. Every error is an
// [*Error].
func Decrypt(ctx context.Context, data []byte, f sops.Format, keys Keys, o Options) (plain []byte, err error) {
	defer recovered(&err)
	o.Limits = o.Limits.WithDefaults()
	store := storeOf(f)
	if err := readable(data, f, store, o.Limits); err != nil {
		return nil, err
	}
	tree, err := store.LoadEncryptedFile(data)
	if err != nil { // whose words may quote the file
		return nil, invalid("it is no %s file of SOPS that can be read", f)
	}
	if n := tree.Metadata.MasterKeyCount(); n > o.Limits.Keys {
		return nil, invalid("it is encrypted to %d keys; at most %d are looked at", n, o.Limits.Keys)
	}
	key, err := dataKey(ctx, &tree.Metadata, keys, o)
	if err != nil {
		return nil, err
	}
	if err := open(&tree, key); err != nil {
		return nil, err
	}
	if plain, err = store.EmitPlainFile(tree.Branches); err != nil {
		return nil, invalid("what it holds can't be written as %s", f)
	}
	return plain, nil
}

// readable refuses what the library should not see.
func readable(data []byte, f sops.Format, store library.Store, l Limits) error {
	switch {
	case store == nil:
		return invalid("there is no format %s", shown(string(f)))
	case len(data) > l.Bytes:
		return invalid("it has %d bytes; at most %d are read", len(data), l.Bytes)
	case f == sops.YAML && document.Bounded("", data) != nil:
		return invalid("its aliases multiply without bound")
	}
	return nil
}

// open decrypts the values of a tree, and proves that they are those that were encrypted.
func open(tree *library.Tree, key []byte) error {
	marked, cipher, unmark := cipherOf(tree)
	mac, err := marked.Decrypt(key, cipher)
	unmark()
	if err != nil {
		return fail(sops.IntegrityFailed, "a value does not decrypt: it was changed, moved or left readable after the file was encrypted")
	}
	if tree.Metadata.MessageAuthenticationCode == "" {
		return fail(sops.IntegrityFailed, "the file has no MAC, so that nobody knows whether it was changed")
	}
	was, err := cipher.Decrypt(tree.Metadata.MessageAuthenticationCode, key, tree.Metadata.LastModified.Format(time.RFC3339))
	if err != nil {
		return fail(sops.IntegrityFailed, "the MAC of the file can't be read: its metadata was changed")
	}
	text, _ := was.(string)
	if subtle.ConstantTimeCompare([]byte(strings.ToUpper(text)), []byte(strings.ToUpper(mac))) != 1 {
		return fail(sops.IntegrityFailed, "the MAC of the file is not that of its values: it was changed after it was encrypted")
	}
	return nil
}
