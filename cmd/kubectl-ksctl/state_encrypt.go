package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ksctl/gitops/internal/atomicfile"
	"github.com/ksctl/gitops/stacks/sops"
	"github.com/ksctl/gitops/stacks/sops/codec"
	"github.com/ksctl/gitops/stacks/state"
)

// outputTarget is the destination of an encrypted or decrypted file.
type outputTarget struct {
	file    string
	inPlace bool
}

func (t *outputTarget) addFlags(fs *pflag.FlagSet) {
	fs.StringVarP(&t.file, "output", "o", "", "file to write; if unset, standard output")
	fs.BoolVar(&t.inPlace, "in-place", false, "replace the input file")
}

// transform reads a file, and writes what f returns for it to the target.
func (t *outputTarget) transform(cmd *cobra.Command, name string, mode os.FileMode,
	f func(ctx context.Context, name string, data []byte) ([]byte, error)) error {
	data, err := readFile(name)
	if err == nil {
		data, err = f(cmd.Context(), name, data)
	}
	if err != nil {
		return err
	}
	return t.write(cmd.OutOrStdout(), name, data, mode)
}

// write writes data to the target. A regular file is replaced atomically.
func (t *outputTarget) write(out io.Writer, from string, data []byte, mode os.FileMode) error {
	file := t.file
	if t.inPlace {
		if file != "" || from == "-" {
			return errors.New("--in-place requires a file name and excludes --output")
		}
		file = from
	}
	if file == "" {
		_, err := out.Write(data)
		return err
	}
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(file); err == nil {
			return fmt.Errorf("%s: the target of the link does not exist", file)
		}
		return atomicfile.Write(file, data, mode)
	}
	if err != nil {
		return err
	}
	special := !info.Mode().IsRegular() || isDescriptorPath(file)
	switch stream := openStream(info, out); {
	case t.inPlace && special:
		return fmt.Errorf("%s: --in-place requires a regular file", file)
	case !t.inPlace && stream != nil:
		_, err := stream.Write(data)
		return err
	case special:
		return appendTo(file, data)
	}
	// Replace the file that a link points to, not the link.
	if file, err = filepath.EvalSymlinks(file); err != nil {
		return err
	}
	return atomicfile.Write(file, data, mode)
}

// openStream returns the stream of this process that is open on the file, or nil. A file to which
// standard output is redirected may have other content already, which replacing the file would
// delete.
func openStream(info fs.FileInfo, out io.Writer) io.Writer {
	for _, w := range []io.Writer{out, os.Stdout, os.Stderr} {
		if f, ok := w.(*os.File); ok {
			if its, err := f.Stat(); err == nil && os.SameFile(info, its) {
				return w
			}
		}
	}
	return nil
}

// isDescriptorPath reports whether a path leads to an open file descriptor, such as /dev/fd/3.
// os.Stat returns the file itself for such a path. Files in /dev/shm are ordinary files.
func isDescriptorPath(file string) bool {
	below := func(dir string) bool { return strings.HasPrefix(file, dir) }
	for range 40 { // the number of links that Linux follows
		var err error
		if file, err = filepath.Abs(file); err != nil {
			return false
		}
		if below("/proc/") || below("/dev/") && !below("/dev/shm/") {
			return true
		}
		to, err := os.Readlink(file)
		if err != nil {
			return false
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(file), to)
		}
		file = to
	}
	return false
}

// appendTo writes data to a device or a pipe, which cannot be replaced, or appends it to a file
// that is open elsewhere. It sets O_CREATE because Linux only rejects a pipe of another user in a
// world-writable folder (fs.protected_fifos) if this flag is set.
func appendTo(file string, data []byte) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

func newStateEncryptCommand() *cobra.Command {
	var out outputTarget
	var recipients []string
	cmd := &cobra.Command{
		Use:   "encrypt FILE --age RECIPIENT",
		Short: "Encrypt the secrets in a state file, so that it can be committed to Git",
		Long: `Encrypt a file that ksctl exported, for public age keys. Names, versions, sizes and addresses of clusters
and machines stay readable. All other fields are encrypted, including those that later releases of ksctl add.
An encrypted value cannot be changed or moved without detection. The result is a SOPS file: sops can edit it,
and an ImportState can import it with the private key from a Secret.`,
		Example: "  kubectl ksctl state encrypt export.json --age age1… -o states/clusters.json\n  kubectl ksctl " +
			"state encrypt states/clusters.json --age age1… --in-place",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return out.transform(cmd, args[0], 0o644, func(ctx context.Context, name string,
				data []byte) ([]byte, error) {
				return encryptState(ctx, name, data, recipients)
			})
		},
	}
	out.addFlags(cmd.Flags())
	cmd.Flags().StringSliceVar(&recipients, "age", nil,
		"public age key that can decrypt the file; can be repeated or comma-separated")
	_ = cmd.MarkFlagRequired("age")
	return cmd
}

// encryptState encrypts all fields of a state file except those that are known not to be secret.
func encryptState(ctx context.Context, name string, data []byte, recipients []string) ([]byte, error) {
	if sops.IsEncrypted(data, sops.JSON) {
		return nil, fmt.Errorf("%s: the file is already encrypted; to change its keys, run sops updatekeys or "+
			"decrypt it first", name)
	}
	if _, err := state.Parse(name, data); err != nil {
		return nil, err
	}
	return state.Encrypt(ctx, name, data, recipients, codec.Encrypt)
}

func newStateDecryptCommand() *cobra.Command {
	var out outputTarget
	var keys ageKeys
	cmd := &cobra.Command{
		Use:     "decrypt FILE --age-key-file KEYS",
		Short:   "Decrypt a state file",
		Long:    `Decrypt a state file with private age keys. Only the owner can read the written file.`,
		Example: "  kubectl ksctl state decrypt states/clusters.json --age-key-file age.agekey -o export.json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return out.transform(cmd, args[0], 0o600, func(ctx context.Context, name string,
				data []byte) ([]byte, error) {
				if !sops.IsEncrypted(data, sops.JSON) {
					return nil, fmt.Errorf("%s: the file is not encrypted", name)
				}
				return keys.decrypt(ctx, name, data)
			})
		},
	}
	out.addFlags(cmd.Flags())
	keys.addFlag(cmd.Flags())
	return cmd
}
