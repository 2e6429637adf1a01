package stacks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/sops"
)

// Decrypter decrypts data; name is the file or values source for messages. Errors of the data or
// the keys are *sops.Error.
type Decrypter func(ctx context.Context, name string, f sops.Format, data []byte) ([]byte, error)

// Limits of decryption for one render.
const (
	// MaxDecryptedFiles is the maximum number of encrypted files and values.
	MaxDecryptedFiles = 1000
	// MaxDecryptedBytes is the maximum total size of the decrypted content.
	MaxDecryptedBytes = 32 << 20
	// maxRounds is the maximum number of renders that discover further encrypted files: an
	// encrypted kustomization may reference others.
	maxRounds = 16
)

// RenderWithDecryption calls render and decrypts its encrypted inputs with decrypt: the values of
// the install, and the files that a render reads. Files that no render reads are not decrypted. If
// decrypt is nil, nothing is decrypted.
func RenderWithDecryption(ctx context.Context, req Request, decrypt Decrypter, render func(context.Context,
	Request) (Result, error)) (Result, error) {
	if decrypt == nil {
		return render(ctx, req)
	}
	d := &decryption{req: req, decrypter: decrypt, remainingBytes: MaxDecryptedBytes}
	if err := d.decryptValues(ctx); err != nil {
		return Result{}, err
	}
	if err := d.decryptParameters(ctx); err != nil {
		return Result{}, err
	}
	for range maxRounds {
		result, err := render(ctx, d.req)
		met, ok := errors.AsType[*EncryptedError](err)
		if !ok {
			result.Decrypted = append(result.Decrypted, d.decryptedValues...)
			return result, err
		}
		if err := d.decryptFiles(ctx, met.Files); err != nil {
			return Result{}, err
		}
	}
	return Result{}, fileInvalidError("decrypted files reference further encrypted files, more than %d levels deep",
		maxRounds)
}

func fileInvalidError(format string, args ...any) error {
	return &sops.Error{Reason: sops.FileInvalid, Message: fmt.Sprintf(format, args...)}
}

// decryption decrypts the inputs of one render.
type decryption struct {
	req       Request
	decrypter Decrypter
	// decryptedValues are the sources of the decrypted values. remainingBytes is the remaining size
	// of decrypted content; count is the number of decrypted files and values.
	decryptedValues []string
	remainingBytes  int
	count           int
}

// decryptValues decrypts the values of the install. Decrypted values are not public.
func (d *decryption) decryptValues(ctx context.Context) error {
	enabled := encryptedValues(&d.req)
	if len(enabled) == 0 {
		return nil
	}
	d.req.Choices.Values = slices.Clone(d.req.Choices.Values)
	for _, i := range enabled {
		in := &d.req.Choices.Values[i]
		f, _ := valuesFormat(in.Data)
		plain, err := d.decrypt(ctx, EncryptedFile{Component: in.Component, Values: in.Source}, f, in.Data)
		if err != nil {
			return err
		}
		in.Data, in.Public = plain, false
		d.decryptedValues = append(d.decryptedValues, in.Source)
	}
	return nil
}

// decryptParameters decrypts the content of spec.parametersFrom. What was encrypted is secret, and
// not what stands beside it.
func (d *decryption) decryptParameters(ctx context.Context) error {
	var out []ParametersInput
	for _, in := range d.req.Choices.ParametersFrom {
		decrypted, rest := map[string][]byte{}, maps.Clone(in.Data)
		for _, key := range in.encryptedKeys() {
			f, _ := valuesFormat(in.Data[key])
			source := in.Source + ", key " + key
			plain, err := d.decrypt(ctx, EncryptedFile{Values: source}, f, in.Data[key])
			if err != nil {
				return err
			}
			decrypted[key] = plain
			delete(rest, key)
			d.decryptedValues = append(d.decryptedValues, source)
		}
		if len(decrypted) > 0 {
			if len(rest) > 0 {
				plain := in
				plain.Data = rest
				out = append(out, plain)
			}
			in.Data, in.Secret = decrypted, true
		}
		out = append(out, in)
	}
	d.req.Choices.ParametersFrom = out
	return nil
}

// decryptFiles decrypts files of the source.
func (d *decryption) decryptFiles(ctx context.Context, met []EncryptedFile) error {
	tree, err := source.Open(d.req.Root)
	if err != nil {
		return err
	}
	defer tree.Close()
	all := maps.Clone(d.req.Decrypted)
	if all == nil {
		all = map[string][]byte{}
	}
	for _, f := range met {
		if _, there := all[f.File]; there || f.File == "" {
			continue // decrypted already, for another component
		}
		data, err := tree.ReadRaw(f.File, source.MaxFile)
		if err != nil {
			return err
		}
		format, _ := sops.Detect(f.File, data)
		if all[f.File], err = d.decrypt(ctx, f, format, data); err != nil {
			return err
		}
	}
	if len(all) == len(d.req.Decrypted) {
		return &sops.Error{Reason: sops.InternalFailure, Message: (&EncryptedError{Files: met}).Subject() +
			" still encrypted after decryption"}
	}
	d.req.Decrypted = all
	return nil
}

// decrypt decrypts one file or values document, within the limits.
func (d *decryption) decrypt(ctx context.Context, what EncryptedFile, f sops.Format, data []byte) ([]byte, error) {
	if d.count++; d.count > MaxDecryptedFiles {
		return nil, fileInvalidError("more than %d files and values are encrypted; merge some of them",
			MaxDecryptedFiles)
	}
	plain, err := d.decrypter(ctx, cmp.Or(what.File, what.Values), f, data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if sops.IsEncrypted(plain, f) {
		return nil, fmt.Errorf("%s: %w", what, fileInvalidError("the content is encrypted twice"))
	}
	if d.remainingBytes -= len(plain); d.remainingBytes < 0 {
		return nil, fileInvalidError("the decrypted content has more than %d bytes", MaxDecryptedBytes)
	}
	return plain, nil
}

// encryptedValues returns the indexes of the encrypted values of enabled components.
func encryptedValues(req *Request) (out []int) {
	disabled := req.Choices.disabled()
	for i := range req.Choices.Values {
		in := &req.Choices.Values[i]
		if _, encrypted := valuesFormat(in.Data); encrypted && !disabled[in.Component] {
			out = append(out, i)
		}
	}
	return out
}

// encryptedKeys returns the keys whose content is encrypted.
func (in *ParametersInput) encryptedKeys() (out []string) {
	for _, key := range slices.Sorted(maps.Keys(in.Data)) {
		if _, encrypted := valuesFormat(in.Data[key]); encrypted && (in.Key == "" || in.Key == key) {
			out = append(out, key)
		}
	}
	return out
}
