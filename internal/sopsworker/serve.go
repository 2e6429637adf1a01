package sopsworker

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/ksctl/gitops/stacks/sops"
)

// request to the program: one of the two.
type request struct {
	Decrypt *sops.Request        `json:"decrypt,omitempty"`
	Encrypt *sops.EncryptRequest `json:"encrypt,omitempty"`
}

// Work is what the program does.
type Work struct {
	Decrypt sops.Decrypter
	Encrypt sops.Encrypter
}

// Serve reads a request, has it done and writes the answer. The error is about reading
// and writing.
func Serve(ctx context.Context, in io.Reader, out io.Writer, work Work) error {
	var r request
	if err := json.NewDecoder(in).Decode(&r); err != nil {
		return errors.New("no request could be read") // the decoder's own words may quote it
	}
	var data []byte
	var err error
	switch {
	case r.Decrypt != nil:
		data, err = work.Decrypt(ctx, *r.Decrypt)
	case r.Encrypt != nil:
		data, err = work.Encrypt(ctx, *r.Encrypt)
	default:
		return errors.New("the request asks for nothing that is done here")
	}
	var a answer
	switch e, ok := errors.AsType[*sops.Error](err); {
	case ok:
		a.Error = e
	case err != nil:
		a.Error = &sops.Error{Reason: sops.Broken, Message: "it failed, and nothing can be said of it"}
	default:
		a.Data = data
	}
	return json.NewEncoder(out).Encode(a)
}
