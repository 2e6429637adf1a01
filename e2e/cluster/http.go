package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// HTTPGet returns the body of a response with status 200. Any other status is an error.
func HTTPGet(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(res.Body)
	if res.StatusCode != http.StatusOK && err == nil {
		err = fmt.Errorf("%s: %s", url, res.Status)
	}
	return string(body), errors.Join(err, res.Body.Close())
}
