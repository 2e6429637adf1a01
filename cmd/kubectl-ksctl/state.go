package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ksctl/gitops/stacks/sops"
	"github.com/ksctl/gitops/stacks/sops/codec"
	"github.com/ksctl/gitops/stacks/state"
)

func newStateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "state",
		Short: "Inspect, validate, encrypt and decrypt state files that ksctl exported",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(newStateInspectCommand(), newStateValidateCommand(), newStateEncryptCommand(),
		newStateDecryptCommand())
	return cmd
}

// ageKeys is the flag with the file of private age keys.
type ageKeys struct{ file string }

func (k *ageKeys) addFlag(fs *pflag.FlagSet) {
	fs.StringVar(&k.file, "age-key-file", os.Getenv("SOPS_AGE_KEY_FILE"),
		"file with private age keys; if unset, $SOPS_AGE_KEY_FILE")
}

// errNoKey is returned for an encrypted file if --age-key-file is not set.
var errNoKey = errors.New("the file is encrypted; set --age-key-file to a file with the private key")

// decrypt decrypts a JSON file with the keys.
func (k *ageKeys) decrypt(ctx context.Context, name string, data []byte) ([]byte, error) {
	plain, err := k.open(ctx, name, sops.JSON, data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return plain, nil
}

// open decrypts a file with the keys.
func (k *ageKeys) open(ctx context.Context, name string, f sops.Format, data []byte) ([]byte, error) {
	if k.file == "" {
		return nil, errNoKey
	}
	keys, err := os.ReadFile(k.file)
	if err != nil {
		return nil, fmt.Errorf("--age-key-file: %w", err)
	}
	return codec.Decrypt(ctx,
		sops.Request{Name: name, Data: data, Format: f, Secret: map[string][]byte{"keys.agekey": keys}})
}

// stateFile is a state file, as far as it can be read.
type stateFile struct {
	name      string
	file      *state.File
	encrypted bool
	// namesEncrypted is true if the names of the clusters are encrypted, too, and there is no key.
	namesEncrypted bool
	// plaintext are the JSON pointers of the secrets that are not encrypted.
	plaintext []string
}

// read reads a state file. It decrypts an encrypted file if there is a key, and otherwise reads the
// fields that are not encrypted.
func (k *ageKeys) read(ctx context.Context, name string) (*stateFile, error) {
	data, err := readFile(name)
	if err != nil {
		return nil, err
	}
	l := &stateFile{name: name, encrypted: sops.IsEncrypted(data, sops.JSON)}
	if l.plaintext, err = state.SecretPointers(data); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	switch {
	case !l.encrypted:
		if sealed, err := state.EncryptedPointers(data); err == nil && len(sealed) > 0 {
			return nil, fmt.Errorf("%s: %s: the value is encrypted, but the SOPS metadata is missing; restore the "+
				"file or encrypt it again", name, sealed[0])
		}
	case k.file != "":
		if data, err = k.decrypt(ctx, name, data); err != nil {
			return nil, err
		}
	default:
		if data, err = dropSOPSMetadata(data); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	l.file, err = state.Parse(name, data)
	if l.encrypted && k.file == "" {
		l.namesEncrypted = err != nil || slices.ContainsFunc(l.file.Clusters, func(c *state.Cluster) bool {
			return strings.Contains(c.ID.Key(), "ENC[")
		})
		return l, nil //nolint:nilerr // the encrypted file cannot be parsed without the key
	}
	return l, err
}

// dropSOPSMetadata removes the SOPS metadata from an encrypted file, so that the fields that are
// not encrypted, such as names and sizes, can be parsed.
func dropSOPSMetadata(data []byte) ([]byte, error) {
	var top map[string]json.RawMessage
	if err := json.Unmarshal(data, &top); err != nil {
		return nil, errors.New("not JSON")
	}
	delete(top, "sops")
	return json.Marshal(top)
}

// readFile reads a file, or standard input if the name is "-".
func readFile(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(io.LimitReader(os.Stdin, state.MaxBytes+1))
	}
	return os.ReadFile(name)
}
