package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	neturl "net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Limits of downloads.
const (
	defaultMaxFile  = 25 << 20
	defaultMaxTotal = 64 << 20
	maxRedirects    = 10
)

// errTooLarge is the error of a body with more bytes than are permitted.
var errTooLarge = errors.New("too large")

// File is a downloaded file.
type File struct {
	Name    string
	Content []byte
}

// Downloader downloads files by http, https and s3 URLs.
type Downloader struct {
	// S3Endpoint is the URL of the S3 server; "" is that of the region. Its requests have the
	// bucket in the path.
	S3Endpoint string
	// Timeout bounds all downloads of a call.
	Timeout time.Duration
	// MaxFile and MaxTotal are the largest sizes of a file and of all files, in bytes; 0 is the
	// default.
	MaxFile, MaxTotal int64
}

// Download downloads each URL once. A file has the last segment of the path of its URL as its name.
func (d *Downloader) Download(ctx context.Context, urls []string) ([]File, error) {
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	parsed := make([]*neturl.URL, len(urls))
	files := make([]File, len(urls))
	for i, raw := range urls {
		u, err := neturl.Parse(raw)
		if err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "s3"}, u.Scheme) {
			// A URL that cannot be parsed may have credentials anywhere.
			return nil, terminalf("URL %d of the script is invalid: use http, https or s3://bucket/key", i+1)
		}
		parsed[i], files[i].Name = u, path.Base(u.Path)
		for k, f := range files[:i] {
			if f.Name == files[i].Name {
				return nil, terminalf("%s and %s have the same file name: rename one of them", label(parsed[k]),
					label(u))
			}
		}
	}
	left := d.limit(d.MaxTotal, defaultMaxTotal)
	for i, u := range parsed {
		content, err := d.download(ctx, u, min(left, d.limit(d.MaxFile, defaultMaxFile)))
		if errors.Is(err, errTooLarge) {
			return nil, terminalf("%s is too large: a file has at most %d bytes, all files of a script %d", label(u),
				d.limit(d.MaxFile, defaultMaxFile), d.limit(d.MaxTotal, defaultMaxTotal))
		}
		if err != nil {
			return nil, fmt.Errorf("downloading %s: %w", label(u), err)
		}
		files[i].Content = content
		left -= int64(len(content))
	}
	return files, nil
}

func (d *Downloader) limit(value, byDefault int64) int64 {
	if value > 0 {
		return value
	}
	return byDefault
}

// label returns a URL without what may be secret in it.
func label(u *neturl.URL) string {
	return (&neturl.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

func (d *Downloader) download(ctx context.Context, u *neturl.URL, limit int64) ([]byte, error) {
	body, err := d.open(ctx, u)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	content, err := io.ReadAll(io.LimitReader(body, limit+1))
	if err != nil {
		return nil, withoutURL(err)
	}
	if int64(len(content)) > limit {
		return nil, errTooLarge
	}
	return content, nil
}

func (d *Downloader) open(ctx context.Context, u *neturl.URL) (io.ReadCloser, error) {
	if u.Scheme == "s3" {
		return d.openS3(ctx, u)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, &terminalError{withoutURL(err)}
	}
	client := &http.Client{CheckRedirect: checkRedirect}
	resp, err := client.Do(req)
	if err != nil {
		return nil, withoutURL(err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	_ = resp.Body.Close()
	err = fmt.Errorf("the server responded with status %s", resp.Status)
	if isTerminalStatus(resp.StatusCode) || resp.StatusCode < http.StatusMultipleChoices {
		return nil, &terminalError{err}
	}
	return nil, err
}

// isTerminalStatus reports whether a server would respond to another request in the same way.
func isTerminalStatus(code int) bool {
	switch code {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return code >= http.StatusMultipleChoices && code < http.StatusInternalServerError
}

// checkRedirect refuses redirects to another scheme: the content would not be as protected as the
// URL promises.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if from := via[0].URL.Scheme; req.URL.Scheme != from {
		return terminalf("the server redirects from %s to %s", from, req.URL.Scheme)
	}
	if len(via) >= maxRedirects {
		return terminalf("the server redirects more than %d times", maxRedirects)
	}
	return nil
}

// withoutURL returns the cause of an error of an HTTP client, whose message contains the URL.
func withoutURL(err error) error {
	if wrapped, ok := errors.AsType[*neturl.Error](err); ok {
		return wrapped.Err
	}
	return err
}

func (d *Downloader) openS3(ctx context.Context, u *neturl.URL) (io.ReadCloser, error) {
	cfg, err := config.LoadDefaultConfig(ctx, config.WithDefaultRegion("us-east-1"))
	if err != nil {
		return nil, fmt.Errorf("reading the AWS configuration: %w", err)
	}
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.DisableLogOutputChecksumValidationSkipped = true
		if d.S3Endpoint != "" {
			o.BaseEndpoint, o.UsePathStyle = &d.S3Endpoint, true
		}
	})
	key := strings.TrimPrefix(u.Path, "/")
	object, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: &u.Host, Key: &key})
	if err != nil {
		return nil, s3Error(err)
	}
	return object.Body, nil
}

// s3Error describes the error of a request to S3, without a request id, so that every attempt has
// the same message.
func s3Error(err error) error {
	out := err
	if refused, ok := errors.AsType[smithy.APIError](err); ok {
		out = fmt.Errorf("%s: %s", refused.ErrorCode(), refused.ErrorMessage())
	}
	response, ok := errors.AsType[*smithyhttp.ResponseError](err)
	if ok && isTerminalStatus(response.HTTPStatusCode()) {
		return &terminalError{out}
	}
	return withoutURL(out)
}
