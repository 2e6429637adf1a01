package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"
)

// download stores the content of a.URL in a new file in dir and returns the name of the
// file, but only if the content has the digest. It retries transient failures, up to
// f.attempts attempts.
func (f *Fetcher) download(ctx context.Context, dir string, a Artifact, sum string) (string, error) {
	rawURL, client := a.URL, a.Client
	if client == nil {
		client = f.client
	}
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return "", &Error{Reason: RefusedAddress, URL: MaskURL(rawURL), Message: "not an http or https URL"}
	}
	// An artifact with its own client ignores the shared back-off: its request can succeed,
	// and it must not get the errors of others.
	shared := a.Client == nil
	if e := f.unresponsive.recentFailure(rawURL); shared && e != nil {
		return "", e
	}
	for attempt := 1; ; attempt++ {
		name, err := f.downloadOnce(ctx, client, dir, rawURL, sum)
		if err == nil {
			return name, nil
		}
		e := classifyError(ctx, err)
		e.URL = MaskURL(rawURL)
		if e.retryable && timedOut(err) {
			if shared {
				f.unresponsive.record(rawURL, e)
			}
			return "", e
		}
		if !e.retryable || attempt >= f.attempts {
			return "", e
		}
		if sleepWithJitter(ctx, f.backoff<<(attempt-1)) != nil {
			return "", e
		}
	}
}

// timedOut is true if the server did not respond in time. An immediate retry would block a
// worker for the same time again.
func timedOut(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

// markRetryable marks an error that another attempt may resolve.
func markRetryable(e *Error) *Error {
	e.retryable = true
	return e
}

// downloadOnce makes one attempt. The error is an *Error.
func (f *Fetcher) downloadOnce(ctx context.Context, client *http.Client,
	dir, rawURL, sum string) (name string, err error) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, rawURL, nil)
	if err != nil {
		return "", wrapError(RefusedAddress, err, "invalid URL")
	}
	// The digest is that of the file as stored on the server: the content must not be decoded.
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := client.Do(req)
	if err != nil {
		return "", markRetryable(wrapError(Unreachable, err, "the server of the artifact can't be reached"))
	}
	defer func() { _ = resp.Body.Close() }()
	if err := statusError(resp.StatusCode); err != nil {
		return "", err
	}
	if resp.ContentLength > f.limits.DownloadBytes {
		return "", newError(TooLarge, "", "the tarball has %d bytes, at most %d are allowed", resp.ContentLength,
			f.limits.DownloadBytes)
	}
	return f.storeBody(dir, resp.Body, sum)
}

// storeBody stores a response body in a file and compares its digest. The content is not
// interpreted before that.
func (f *Fetcher) storeBody(dir string, body io.Reader, sum string) (name string, err error) {
	file, err := os.CreateTemp(dir, "download-")
	if err != nil {
		return "", wrapError(Storage, err, "storing the download")
	}
	defer func() {
		if cerr := file.Close(); err == nil && cerr != nil {
			err = wrapError(Storage, cerr, "storing the download")
		}
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	hash := sha256.New()
	w := &TrackingWriter{W: file}
	n, err := io.Copy(io.MultiWriter(w, hash), io.LimitReader(body, f.limits.DownloadBytes+1))
	switch {
	case w.Err != nil:
		return "", wrapError(Storage, w.Err, "storing the download")
	case n > f.limits.DownloadBytes:
		return "", newError(TooLarge, "", "the tarball has more than the %d bytes allowed", f.limits.DownloadBytes)
	case err != nil:
		return "", markRetryable(wrapError(Unreachable, err, "the download ended early, after %d bytes", n))
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != sum {
		return "", newError(DigestMismatch, "", "the download of %d bytes has the digest sha256:%s, expected sha256:%s",
			n, got, sum)
	}
	return file.Name(), nil
}

// statusError returns the error of an HTTP status code, and nil for 200.
func statusError(code int) error {
	if code == http.StatusOK {
		return nil
	}
	e := newError(Unreachable, "", "the server answered %d %s", code, http.StatusText(code))
	switch {
	case code == http.StatusNotFound || code == http.StatusGone:
		e.Reason = NotFound
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		e.Reason = AccessDenied
	case code == http.StatusTooManyRequests || code >= 500:
		e.retryable = true
	default:
		e.Message += ", expected 200"
	}
	return e
}

// classifyError returns the *Error of a failed attempt. It is retryable only if a retry makes
// sense.
func classifyError(ctx context.Context, err error) *Error {
	if ctx.Err() != nil {
		return wrapError(Unreachable, context.Cause(ctx), "interrupted while downloading")
	}
	e, _ := errors.AsType[*Error](err)
	if refused, ok := AsRefusedAddress(e.Err); ok {
		return refused
	}
	return e
}

// sleepWithJitter waits between d/2 and d, so that many clients do not retry at the same time.
func sleepWithJitter(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d/2 + rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
