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
		Short: "Look into states that ksctl exported, encrypt and decrypt them",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(newStateInspectCommand(), newStateValidateCommand(), newStateEncryptCommand(), newStateDecryptCommand())
	return cmd
}

// ageKeys is the file with the keys that decrypt.
type ageKeys struct{ file string }

func (k *ageKeys) addFlag(fs *pflag.FlagSet) {
	fs.StringVar(&k.file, "age-key-file", os.Getenv("SOPS_AGE_KEY_FILE"), "file with private keys of age; that of $SOPS_AGE_KEY_FILE when unset")
}

// errNoKey says that a file is encrypted, and nobody said with what to decrypt it.
var errNoKey = errors.New("it is encrypted: name the file with the key in --age-key-file")

// decrypt decrypts a file of JSON with the keys.
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
	return codec.Decrypter(codec.Options{})(ctx, sops.Request{Name: name, Data: data, Format: f, Secret: map[string][]byte{"keys.agekey": keys}})
}

// looked is a file as far as it can be looked into.
type looked struct {
	name      string
	file      *state.File
	encrypted bool
	// closed is true when what its clusters are called is encrypted, too, and there is no key.
	closed bool
	// readable are pointers of the secrets that anybody can read who has the file.
	readable []string
}

// look reads a file. One that is encrypted is decrypted where there is a key; else what
// is not secret is read.
func (k *ageKeys) look(ctx context.Context, name string) (*looked, error) {
	data, err := readFile(name)
	if err != nil {
		return nil, err
	}
	l := &looked{name: name, encrypted: sops.Encrypted(data, sops.JSON)}
	if l.readable, err = state.Secrets(data); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	switch {
	case !l.encrypted:
		if sealed, err := state.Sealed(data); err == nil && len(sealed) > 0 {
			return nil, fmt.Errorf("%s: %s: it is encrypted, and the metadata of SOPS is missing: restore the file, or encrypt it anew", name, sealed[0])
		}
	case k.file != "":
		if data, err = k.decrypt(ctx, name, data); err != nil {
			return nil, err
		}
	default:
		if data, err = withoutMetadata(data); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	l.file, err = state.Parse(name, data)
	if l.encrypted && k.file == "" {
		l.closed = err != nil || slices.ContainsFunc(l.file.Clusters, nameless)
		return l, nil //nolint:nilerr // it can't be read without the key
	}
	return l, err
}

// nameless is true for a cluster of which it is encrypted which it is.
func nameless(c *state.Cluster) bool { return strings.Contains(c.ID.Key(), "ENC[") }

// withoutMetadata is an encrypted file as if it were none: names and sizes can be read.
func withoutMetadata(data []byte) ([]byte, error) {
	var top map[string]json.RawMessage
	if err := json.Unmarshal(data, &top); err != nil {
		return nil, errors.New("not JSON")
	}
	delete(top, "sops")
	return json.Marshal(top)
}

// readFile reads a file, or what comes in for "-".
func readFile(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(io.LimitReader(os.Stdin, state.MaxBytes+1))
	}
	return os.ReadFile(name)
}
