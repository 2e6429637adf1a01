package probe

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
)

// What is read of an answer, at most: whoever answers is not trusted.
const (
	maxAnswer  = 1 << 20
	maxHeaders = 64 << 10
	maxVersion = 64
)

// versionPattern is what a version of Kubernetes looks like. An answer stands in the status.
var versionPattern = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+[-+.0-9A-Za-z]*$`)

// uidPattern is what a uid looks like, which stands in a status, too.
var uidPattern = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// statusError is an answer that is none of an API server that knows us.
type statusError struct {
	path string
	code int
}

func (e *statusError) Error() string {
	switch e.code {
	case http.StatusUnauthorized:
		return "it does not know the user of the kubeconfig (401)"
	case http.StatusForbidden:
		return "the user of the kubeconfig may not ask for its version (403)"
	}
	return fmt.Sprintf("it answers %s with %d %s", e.path, e.code, http.StatusText(e.code))
}

var errNoServer = errors.New("what answers is no API server of Kubernetes")

// Answer of a cluster.
type Answer struct {
	// Version of Kubernetes.
	Version string
	// Nodes that there are; nil: it may not be asked.
	Nodes *int32
	// UID of the namespace kube-system, which no two clusters have in common; "": it may not
	// be asked.
	UID string
}

// Ask asks an API server for its version, and for the number of its nodes.
func Ask(ctx context.Context, cfg *rest.Config) (Answer, error) {
	c, done, err := clientOf(cfg)
	if err != nil {
		return Answer{}, err
	}
	defer done()
	base := strings.TrimSuffix(cfg.Host, "/")
	var v version.Info
	if err := read(ctx, c, base+"/version", &v); err != nil {
		return Answer{}, Explain(ctx, err)
	}
	if len(v.GitVersion) > maxVersion || !versionPattern.MatchString(v.GitVersion) || tells(v.GitVersion, cfg) {
		return Answer{}, errNoServer
	}
	out := Answer{Version: v.GitVersion}
	if out.UID, err = systemUID(ctx, c, base); err == nil {
		out.Nodes, err = countNodes(ctx, c, base)
	}
	if err != nil {
		return Answer{}, Explain(ctx, err)
	}
	return out, nil
}

// refused is true for what a user is not allowed to ask. It need not be.
func refused(err error) bool {
	var status *statusError
	return errors.As(err, &status) && (status.code == http.StatusForbidden || status.code == http.StatusNotFound)
}

// systemUID is the uid of the namespace kube-system.
func systemUID(ctx context.Context, c *http.Client, base string) (string, error) {
	var system struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}
	err := read(ctx, c, base+"/api/v1/namespaces/kube-system", &system)
	if refused(err) || err == nil && !uidPattern.MatchString(system.Metadata.UID) {
		return "", nil
	}
	return system.Metadata.UID, err
}

// countNodes is the number of nodes.
func countNodes(ctx context.Context, c *http.Client, base string) (*int32, error) {
	var nodes struct {
		Metadata struct {
			Remaining *int64 `json:"remainingItemCount"`
		} `json:"metadata"`
		Items []json.RawMessage `json:"items"`
	}
	err := read(ctx, c, base+"/api/v1/nodes?limit=1", &nodes)
	if refused(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	n := int32(min(len(nodes.Items), 1)) // one was asked for
	if r := nodes.Metadata.Remaining; r != nil {
		n += int32(min(max(*r, 0), 1<<30))
	}
	return &n, nil
}

// tells is true when an answer has credentials in it.
func tells(answer string, cfg *rest.Config) bool {
	return cfg.BearerToken != "" && strings.Contains(answer, cfg.BearerToken) || cfg.Password != "" && strings.Contains(answer, cfg.Password)
}

// clientOf returns a client with connections of its own, and what closes them.
func clientOf(cfg *rest.Config) (c *http.Client, done func(), err error) {
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, nil, err
	}
	t := &http.Transport{Proxy: cfg.Proxy, TLSClientConfig: tlsConfig, DisableCompression: true, MaxResponseHeaderBytes: maxHeaders}
	rt, err := rest.HTTPWrappersForConfig(cfg, t)
	if err != nil {
		return nil, nil, err
	}
	// Where it sends us to is not where it was said to be.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Transport: rt, CheckRedirect: stay}, t.CloseIdleConnections, nil
}

// read reads an answer.
func read(ctx context.Context, c *http.Client, address string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	res, err := c.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return &statusError{path: req.URL.Path, code: res.StatusCode}
	}
	if json.Unmarshal(body, into) != nil {
		return errNoServer
	}
	return nil
}

// Explain is an error of a request without what differs each time, such as our own port or
// the time, and without what a stranger says.
func Explain(ctx context.Context, err error) error {
	var (
		status  *statusError
		errno   syscall.Errno
		op      *net.OpError
		name    *net.DNSError
		invalid x509.CertificateInvalidError
		host    x509.HostnameError
		unknown x509.UnknownAuthorityError
	)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return errors.New("it does not answer in time")
	case errors.As(err, &status), errors.Is(err, errNoServer):
		return err
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return errors.New("its certificate has expired, or is not valid yet")
	case errors.As(err, &invalid):
		return errors.New("its certificate is not valid")
	case errors.As(err, &host):
		return errors.New("its certificate is for another address")
	case errors.As(err, &unknown):
		return errors.New("its certificate is of an authority that the kubeconfig does not have")
	case errors.As(err, &name):
		return errors.New("its name is not known")
	case errors.As(err, &errno):
		return errors.New(errno.Error())
	case errors.As(err, &op):
		return errors.New("its connection fails at " + op.Op)
	}
	return errors.New("what answers does not speak as an API server does")
}
