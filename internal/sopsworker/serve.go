package sopsworker

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/ksctl/gitops/stacks/sops"
)

// Serve reads a request, has it decrypted and writes the answer. The error is about reading
// and writing.
func Serve(ctx context.Context, in io.Reader, out io.Writer, decrypt sops.Decrypter) error {
	var r sops.Request
	if err := json.NewDecoder(in).Decode(&r); err != nil {
		return errors.New("no request could be read") // the decoder's own words may quote it
	}
	var a answer
	data, err := decrypt(ctx, r)
	switch e, ok := errors.AsType[*sops.Error](err); {
	case ok:
		a.Error = e
	case err != nil:
		a.Error = &sops.Error{Reason: sops.Broken, Message: "decrypting failed, and nothing can be said of it"}
	default:
		a.Data = data
	}
	return json.NewEncoder(out).Encode(a)
}
