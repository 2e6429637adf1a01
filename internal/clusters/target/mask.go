package target

import (
	"bytes"
	"io"
	"net/http"

	"k8s.io/client-go/rest"
)

// maxErrorBody is the maximum number of bytes that are read of an error response.
const maxErrorBody = 1 << 20

// maskCredentials removes the credentials from the body of an error response. The server received
// them and may quote them, and the text is copied to statuses and events.
func maskCredentials(res *http.Response, cfg *rest.Config) error {
	text, err := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	if err != nil {
		_ = res.Body.Close()
		return err
	}
	for _, secret := range []string{cfg.BearerToken, cfg.Password} {
		if secret != "" {
			text = bytes.ReplaceAll(text, []byte(secret), []byte("…"))
		}
	}
	unread := res.Body
	res.Body = &body{ReadCloser: io.NopCloser(bytes.NewReader(text)), close: func() { _ = unread.Close() }}
	res.ContentLength = int64(len(text))
	res.Header.Del("Content-Length")
	return nil
}
