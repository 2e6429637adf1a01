package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"time"
)

// download writes what a.URL serves to a new file in dir and returns its name,
// but only if it has the digest. A server that does not answer well is asked
// again a few times.
func (f *Fetcher) download(ctx context.Context, dir string, a Artifact, sum string) (string, error) {
	rawURL, client := a.URL, a.Client
	if client == nil {
		client = f.client
	}
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return "", &Error{Reason: RefusedAddress, URL: MaskURL(rawURL), Message: "not an http or https URL"}
	}
	shared := a.Client == nil // who has a client of its own may be served well, and told nothing of others
	if e := f.silent.says(rawURL); shared && e != nil {
		return "", e
	}
	for attempt := 1; ; attempt++ {
		name, err := f.attempt(ctx, client, dir, rawURL, sum)
		if err == nil {
			return name, nil
		}
		e, retry := judge(ctx, err)
		e.URL = MaskURL(rawURL)
		if retry && timedOut(err) {
			if shared {
				f.silent.note(rawURL, e)
			}
			return "", e
		}
		if !retry || attempt >= f.attempts {
			return "", e
		}
		if pause(ctx, f.backoff<<(attempt-1)) != nil {
			return "", e
		}
	}
}

// timedOut is true when nobody answered in time. Who waits for that again keeps a worker
// from what could be done.
func timedOut(err error) bool {
	e, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && e.Timeout()
}

// again marks what another attempt may mend.
func again(e *Error) *Error {
	e.again = true
	return e
}

func (f *Fetcher) attempt(ctx context.Context, client *http.Client, dir, rawURL, sum string) (name string, err error) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, rawURL, nil)
	if err != nil {
		return "", failBy(RefusedAddress, err, "not a URL to fetch from")
	}
	// The digest is that of the file as it is stored: nobody may decode it on the way.
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := client.Do(req)
	if err != nil {
		return "", again(failBy(Unreachable, err, "the server of the artifact can't be reached"))
	}
	defer func() { _ = resp.Body.Close() }()
	if err := status(resp.StatusCode); err != nil {
		return "", err
	}
	if resp.ContentLength > f.limits.DownloadBytes {
		return "", fail(TooLarge, "", "the tarball has %d bytes, at most %d are allowed", resp.ContentLength, f.limits.DownloadBytes)
	}
	return f.receive(dir, resp.Body, sum)
}

// receive stores a body in a file and compares its digest. Nothing of the
// content has been looked at before that.
func (f *Fetcher) receive(dir string, body io.Reader, sum string) (name string, err error) {
	file, err := os.CreateTemp(dir, "download-")
	if err != nil {
		return "", failBy(Storage, err, "storing the download")
	}
	defer func() {
		if cerr := file.Close(); err == nil && cerr != nil {
			err = failBy(Storage, cerr, "storing the download")
		}
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	hash := sha256.New()
	w := &fileWriter{w: file}
	n, err := io.Copy(io.MultiWriter(w, hash), io.LimitReader(body, f.limits.DownloadBytes+1))
	switch {
	case w.err != nil:
		return "", failBy(Storage, w.err, "storing the download")
	case n > f.limits.DownloadBytes:
		return "", fail(TooLarge, "", "the tarball has more than the %d bytes allowed", f.limits.DownloadBytes)
	case err != nil:
		return "", again(failBy(Unreachable, err, "the download broke off after %d bytes", n))
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != sum {
		return "", fail(DigestMismatch, "", "the download of %d bytes has the digest sha256:%s, expected sha256:%s", n, got, sum)
	}
	return file.Name(), nil
}

func status(code int) error {
	switch {
	case code == http.StatusOK:
		return nil
	case code == http.StatusNotFound || code == http.StatusGone:
		return fail(NotFound, "", "the server answered %d %s", code, http.StatusText(code))
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return fail(AccessDenied, "", "the server answered %d %s", code, http.StatusText(code))
	case code == http.StatusTooManyRequests || code >= 500:
		return again(fail(Unreachable, "", "the server answered %d %s", code, http.StatusText(code)))
	default:
		return fail(Unreachable, "", "the server answered %d %s, expected 200", code, http.StatusText(code))
	}
}

// judge says what an attempt failed with and whether another one makes sense.
func judge(ctx context.Context, err error) (*Error, bool) {
	if ctx.Err() != nil {
		return failBy(Unreachable, context.Cause(ctx), "interrupted while downloading"), false
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return failBy(Unreachable, err, "downloading"), false
	}
	if refused, ok := Refused(e.Err); ok {
		return refused, false
	}
	return e, e.again
}

// pause waits between half of d and all of it, so that many do not come back at once.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d/2 + rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
