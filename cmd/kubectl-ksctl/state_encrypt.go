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

	"github.com/ksctl/gitops/stacks/sops"
	"github.com/ksctl/gitops/stacks/sops/codec"
	"github.com/ksctl/gitops/stacks/state"
)

// target is where a file goes.
type target struct {
	file    string
	inPlace bool
}

func (t *target) addFlags(fs *pflag.FlagSet) {
	fs.StringVarP(&t.file, "output", "o", "", "file to write; standard output when unset")
	fs.BoolVar(&t.inPlace, "in-place", false, "write over the file itself")
}

// write puts data where it belongs: into a file whole or not at all.
func (t *target) write(out io.Writer, from string, data []byte, mode os.FileMode) error {
	file := t.file
	if t.inPlace {
		if file != "" || from == "-" {
			return errors.New("--in-place is for a file, and without --output")
		}
		file = from
	}
	if file == "" {
		_, err := out.Write(data)
		return err
	}
	info, err := os.Stat(file)
	switch {
	case err == nil && t.inPlace && (!info.Mode().IsRegular() || opened(file)):
		return fmt.Errorf("%s: --in-place is for a regular file", file)
	case err == nil && !t.inPlace && sameAs(info, out) != nil:
		_, err = sameAs(info, out).Write(data)
		return err
	case err == nil && (!info.Mode().IsRegular() || opened(file)):
		return writeInto(file, data)
	case err == nil:
		// What a link leads to is replaced, and not the link.
		if file, err = filepath.EvalSymlinks(file); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	default:
		if link, err := os.Lstat(file); err == nil && link.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%s: it is a link to a file that is not there", file)
		}
	}
	return replace(file, data, mode)
}

// sameAs is what this process writes to already, if that is the file: a file that standard output
// goes to may hold more, which replacing it would lose.
func sameAs(info fs.FileInfo, out io.Writer) io.Writer {
	for _, w := range []io.Writer{out, os.Stdout, os.Stderr} {
		if f, ok := w.(*os.File); ok {
			if its, err := f.Stat(); err == nil && os.SameFile(info, its) {
				return w
			}
		}
	}
	return nil
}

// opened is true for a name of what somebody has open, as /dev/fd/3 is: to this process it looks
// like the file itself. What lies in /dev/shm are files like any others.
func opened(file string) bool {
	below := func(dir string) bool { return strings.HasPrefix(file, dir) }
	for range 40 { // as many links as Linux follows
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

// writeInto writes data into a device or a pipe, which is nothing to be replaced, or after what a
// file that somebody has open holds. Only where a file may be made does Linux refuse the pipe of
// somebody else in a folder that anybody writes to (fs.protected_fifos).
func writeInto(file string, data []byte) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// replace writes a file beside another one, and puts it in its place.
func replace(file string, data []byte, mode os.FileMode) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(file), ".ksctl-state-*") // readable by its owner alone
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name())
		}
	}()
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Chmod(mode), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}

func newStateEncryptCommand() *cobra.Command {
	var to target
	var recipients []string
	cmd := &cobra.Command{
		Use:   "encrypt FILE --age RECIPIENT",
		Short: "Encrypt a file but for names, sizes and addresses, so that it can go into Git",
		Long: `Encrypt a file that ksctl exported, to public keys of age. Names, versions, sizes and addresses of clusters
and machines stay readable; all else is encrypted, also what a later release of ksctl adds, and no encrypted
value can be changed or moved unnoticed. It is a file of SOPS then: sops edits it, and an ImportState with
the private key in a Secret imports it.`,
		Example: "  kubectl ksctl state encrypt export.json --age age1… -o states/clusters.json\n  kubectl ksctl state encrypt states/clusters.json --age age1… --in-place",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := readFile(args[0])
			if err != nil {
				return err
			}
			sealed, err := encryptState(cmd.Context(), args[0], data, recipients)
			if err != nil {
				return err
			}
			return to.write(cmd.OutOrStdout(), args[0], sealed, 0o644)
		},
	}
	to.addFlags(cmd.Flags())
	cmd.Flags().StringSliceVar(&recipients, "age", nil, "public key of age that may decrypt the file; once for each, or with commas")
	_ = cmd.MarkFlagRequired("age")
	return cmd
}

// encryptState encrypts a file but for what is known to be open.
func encryptState(ctx context.Context, name string, data []byte, recipients []string) ([]byte, error) {
	if sops.Encrypted(data, sops.JSON) {
		return nil, fmt.Errorf("%s: it is encrypted already; for other keys: sops updatekeys, or decrypt it first", name)
	}
	if _, err := state.Parse(name, data); err != nil {
		return nil, err
	}
	return state.Seal(ctx, name, data, recipients, codec.Encrypter(codec.Limits{}))
}

func newStateDecryptCommand() *cobra.Command {
	var to target
	var keys ageKeys
	cmd := &cobra.Command{
		Use:     "decrypt FILE --age-key-file KEYS",
		Short:   "Decrypt a file",
		Long:    `Decrypt a file with private keys of age. What is written can be read by its owner alone.`,
		Example: "  kubectl ksctl state decrypt states/clusters.json --age-key-file age.agekey -o export.json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := readFile(args[0])
			if err != nil {
				return err
			}
			if !sops.Encrypted(data, sops.JSON) {
				return fmt.Errorf("%s: it is not encrypted", args[0])
			}
			plain, err := keys.decrypt(cmd.Context(), args[0], data)
			if err != nil {
				return err
			}
			return to.write(cmd.OutOrStdout(), args[0], plain, 0o600)
		},
	}
	to.addFlags(cmd.Flags())
	keys.addFlag(cmd.Flags())
	return cmd
}
