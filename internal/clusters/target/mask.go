package target

import (
	"bytes"
	"io"
	"net/http"

	"k8s.io/client-go/rest"
)

// maxRefusal is how much is read of an answer that refuses something, in bytes.
const maxRefusal = 1 << 20

// mask takes our credentials out of an answer that refuses something: its words stand in
// statuses and events, and whoever answers was told them.
func mask(res *http.Response, cfg *rest.Config) error {
	said, err := io.ReadAll(io.LimitReader(res.Body, maxRefusal))
	if err != nil {
		_ = res.Body.Close()
		return err
	}
	for _, secret := range []string{cfg.BearerToken, cfg.Password} {
		if secret != "" {
			said = bytes.ReplaceAll(said, []byte(secret), []byte("…"))
		}
	}
	unread := res.Body
	res.Body = &body{ReadCloser: io.NopCloser(bytes.NewReader(said)), close: func() { _ = unread.Close() }}
	res.ContentLength = int64(len(said))
	res.Header.Del("Content-Length")
	return nil
}
