package stacks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/sops"
)

// Opener decrypts what is called name. Errors that say something of it or of the keys
// are *sops.Error.
type Opener func(ctx context.Context, name string, f sops.Format, data []byte) ([]byte, error)

// Bounds of what is decrypted for one render.
const (
	// MaxDecryptedFiles are files, and values.
	MaxDecryptedFiles = 1000
	// MaxDecryptedBytes are those of all of them, decrypted.
	MaxDecryptedBytes = 32 << 20
	// maxRounds is how often a render may meet files that are encrypted: a kustomization that is
	// encrypted names others.
	maxRounds = 16
)

// Decrypting renders with render, and has decrypted what turns out to be encrypted: values of
// the install, and files as a render meets them. Files that no render reads are not looked
// at. Without open nothing is decrypted.
func Decrypting(ctx context.Context, req Request, open Opener, render func(context.Context, Request) (Result, error)) (Result, error) {
	if open == nil {
		return render(ctx, req)
	}
	d := &decryption{req: req, open: open, left: MaxDecryptedBytes}
	if err := d.values(ctx); err != nil {
		return Result{}, err
	}
	for range maxRounds {
		result, err := render(ctx, d.req)
		met, ok := errors.AsType[*EncryptedError](err)
		if !ok {
			result.Decrypted = append(result.Decrypted, d.opened...)
			return result, err
		}
		if err := d.files(ctx, met.Files); err != nil {
			return Result{}, err
		}
	}
	return Result{}, unusable("each file that is decrypted leads to another one that is, more than %d times", maxRounds)
}

func unusable(format string, args ...any) error {
	return &sops.Error{Reason: sops.FileInvalid, Message: fmt.Sprintf(format, args...)}
}

// decryption is what was decrypted so far for one render.
type decryption struct {
	req  Request
	open Opener
	// opened are the values that were decrypted; left are the bytes that may be yet.
	opened []string
	left   int
	count  int
}

// values decrypts the values of the install. What they hold is no longer public.
func (d *decryption) values(ctx context.Context) error {
	enabled := encryptedValues(&d.req)
	if len(enabled) == 0 {
		return nil
	}
	d.req.Choices.Values = slices.Clone(d.req.Choices.Values)
	for _, i := range enabled {
		in := &d.req.Choices.Values[i]
		f, _ := valuesFormat(in.Data)
		plain, err := d.one(ctx, EncryptedFile{Component: in.Component, Values: in.Source}, f, in.Data)
		if err != nil {
			return err
		}
		in.Data, in.Public = plain, false
		d.opened = append(d.opened, in.Source)
	}
	return nil
}

// files decrypts files of the source.
func (d *decryption) files(ctx context.Context, met []EncryptedFile) error {
	tree, err := source.Open(d.req.Root)
	if err != nil {
		return err
	}
	defer func() { _ = tree.Close() }()
	all := maps.Clone(d.req.Decrypted)
	if all == nil {
		all = map[string][]byte{}
	}
	for _, f := range met {
		if _, there := all[f.File]; there || f.File == "" {
			continue // for another component
		}
		data, err := tree.Stored(f.File, source.MaxFile)
		if err != nil {
			return err
		}
		format, _ := sops.Detect(f.File, data)
		if all[f.File], err = d.one(ctx, f, format, data); err != nil {
			return err
		}
	}
	if len(all) == len(d.req.Decrypted) {
		return &sops.Error{Reason: sops.Broken, Message: (&EncryptedError{Files: met}).Named() + " decrypted, and met encrypted all the same"}
	}
	d.req.Decrypted = all
	return nil
}

// one decrypts one of them, within the bounds.
func (d *decryption) one(ctx context.Context, what EncryptedFile, f sops.Format, data []byte) ([]byte, error) {
	if d.count++; d.count > MaxDecryptedFiles {
		return nil, unusable("more than %d files and values are encrypted: put what belongs together into one", MaxDecryptedFiles)
	}
	name := what.File
	if name == "" {
		name = what.Values
	}
	plain, err := d.open(ctx, name, f, data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if sops.Encrypted(plain, f) {
		return nil, fmt.Errorf("%s: %w", what, unusable("it is encrypted twice"))
	}
	if d.left -= len(plain); d.left < 0 {
		return nil, unusable("what is decrypted has more than %d bytes", MaxDecryptedBytes)
	}
	return plain, nil
}

// encryptedValues are the values that have to be decrypted, by their place.
func encryptedValues(req *Request) (out []int) {
	left := leftOut(req)
	for i := range req.Choices.Values {
		in := &req.Choices.Values[i]
		if _, encrypted := valuesFormat(in.Data); encrypted && !left[in.Component] {
			out = append(out, i)
		}
	}
	return out
}
