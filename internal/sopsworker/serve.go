package sopsworker

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/ksctl/gitops/stacks/sops"
)

// request is the request to a worker process. Exactly one field is set.
type request struct {
	Decrypt *sops.Request        `json:"decrypt,omitempty"`
	Encrypt *sops.EncryptRequest `json:"encrypt,omitempty"`
}

// Handlers are the functions that execute the requests in a worker process.
type Handlers struct {
	Decrypt sops.Decrypter
	Encrypt sops.Encrypter
}

// Serve reads one request from in, executes it and writes the response to out. A failed request is
// part of the response; the returned error is about an invalid request, or about writing.
func Serve(ctx context.Context, in io.Reader, out io.Writer, handlers Handlers) error {
	var r request
	if err := json.NewDecoder(in).Decode(&r); err != nil {
		return errors.New("the request is not valid JSON") // the decoder's error may quote secrets
	}
	var data []byte
	var err error
	switch {
	case r.Decrypt != nil:
		data, err = handlers.Decrypt(ctx, *r.Decrypt)
	case r.Encrypt != nil:
		data, err = handlers.Encrypt(ctx, *r.Encrypt)
	default:
		return errors.New("the request has neither decrypt nor encrypt")
	}
	var a response
	switch e, ok := errors.AsType[*sops.Error](err); {
	case ok:
		a.Error = e
	case err != nil:
		a.Error = &sops.Error{Reason: sops.InternalFailure,
			Message: "the operation failed; its error is withheld because it may contain secrets"}
	default:
		a.Data = data
	}
	return json.NewEncoder(out).Encode(a)
}
