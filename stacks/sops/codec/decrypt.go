package codec

import (
	"context"
	"crypto/subtle"
	"crypto/x509"
	"net"
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

// The library logs its input, so logging is disabled.
func init() { logging.SetLevel(logrus.PanicLevel) }

// storeOf returns the store that reads and writes a format; nil for an unknown format.
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

// Decrypt decrypts a file, and verifies that it was not changed since it was encrypted. It is a
// [sops.Decrypter]. Every error is an [*Error].
func Decrypt(ctx context.Context, r sops.Request) ([]byte, error) {
	keys, err := KeysFromSecret(r.Secret)
	if err != nil {
		return nil, err
	}
	return decrypt(ctx, r.Data, r.Format, keys, defaultOptions())
}

func decrypt(ctx context.Context, data []byte, f sops.Format, keys Keys, o options) (plain []byte, err error) {
	defer recoverPanic(&err)
	store := storeOf(f)
	if err := checkInput(data, f, store); err != nil {
		return nil, err
	}
	tree, err := store.LoadEncryptedFile(data)
	if err != nil { // dropped, because it may quote the file
		return nil, invalid("the file is not a valid SOPS file in %s format", f)
	}
	if n := tree.Metadata.MasterKeyCount(); n > maxKeys {
		return nil, invalid("the file is encrypted for %d keys; at most %d are allowed", n, maxKeys)
	}
	key, err := dataKey(ctx, &tree.Metadata, keys, o)
	if err != nil {
		return nil, err
	}
	if err := decryptTree(&tree, key); err != nil {
		return nil, err
	}
	if plain, err = store.EmitPlainFile(tree.Branches); err != nil {
		return nil, invalid("the decrypted content can't be written as %s", f)
	}
	return plain, nil
}

// checkInput refuses files that the library must not parse.
func checkInput(data []byte, f sops.Format, store library.Store) error {
	switch {
	case store == nil:
		return invalid("unknown format %s", sanitize(string(f)))
	case len(data) > maxBytes:
		return invalid("the file has %d bytes; at most %d are allowed", len(data), maxBytes)
	case f == sops.YAML && document.CheckAliasExpansion("", data) != nil:
		return invalid("the aliases of the file expand beyond the limit")
	}
	return nil
}

// decryptTree decrypts the values of a tree, and verifies the MAC.
func decryptTree(tree *library.Tree, key []byte) error {
	marked, cipher, unmark := markTree(tree)
	mac, err := marked.Decrypt(key, cipher)
	unmark()
	if err != nil {
		return newError(sops.IntegrityFailed,
			"a value can't be decrypted: the value was changed, moved or replaced by plain text after the file was "+
				"encrypted")
	}
	if tree.Metadata.MessageAuthenticationCode == "" {
		return newError(sops.IntegrityFailed, "the file has no MAC, so changes can't be detected")
	}
	storedMAC, err := cipher.Decrypt(tree.Metadata.MessageAuthenticationCode, key,
		tree.Metadata.LastModified.Format(time.RFC3339))
	if err != nil {
		return newError(sops.IntegrityFailed, "the MAC of the file can't be decrypted: the metadata was changed")
	}
	text, _ := storedMAC.(string)
	if subtle.ConstantTimeCompare([]byte(strings.ToUpper(text)), []byte(strings.ToUpper(mac))) != 1 {
		return newError(sops.IntegrityFailed,
			"the MAC does not match the values: the file was changed after it was encrypted")
	}
	return nil
}

// Limits of one file. They are generous for files that people edit.
const (
	// maxBytes is the maximum size of a file.
	maxBytes = 5 << 20
	// maxKeys is the maximum number of keys that a file may be encrypted for.
	maxKeys = 200
	// maxRequests is the maximum number of requests to key services.
	maxRequests = 20
)

// options are the options of requests to key services.
type options struct {
	// requestTimeout is the timeout of one request.
	requestTimeout time.Duration
	// requestsTimeout is the timeout of all requests together. It is less than the minute that a
	// decryption process has for a file, so that the error can name the key service.
	requestsTimeout time.Duration
	// roots and dial replace the CAs of the system and the guarded dialer in tests.
	roots *x509.CertPool
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
}

func defaultOptions() options {
	return options{requestTimeout: 15 * time.Second, requestsTimeout: 45 * time.Second}
}
