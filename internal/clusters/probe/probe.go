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

// Size limits of a response in bytes, because the server is not trusted.
const (
	maxResponseBytes = 1 << 20
	maxHeaderBytes   = 64 << 10
	maxVersionBytes  = 64
)

// versionPattern matches versions of Kubernetes. The version is copied to a status.
var versionPattern = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+[-+.0-9A-Za-z]*$`)

// uidPattern matches UIDs. The UID is copied to a status.
var uidPattern = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// statusError reports a response with a status other than 200.
type statusError struct {
	path string
	code int
}

func (e *statusError) Error() string {
	switch e.code {
	case http.StatusUnauthorized:
		return "the credentials of the kubeconfig are not accepted (401)"
	case http.StatusForbidden:
		return "the user of the kubeconfig may not get /version (403)"
	}
	return fmt.Sprintf("GET %s returns %d %s", e.path, e.code, http.StatusText(e.code))
}

var errNotAPIServer = errors.New("the server is not a Kubernetes API server")

// Result is the result of a successful probe.
type Result struct {
	// Version is the version of Kubernetes.
	Version string
	// Nodes is the number of nodes; nil if the user may not list them.
	Nodes *int32
	// UID is the UID of the namespace kube-system, which identifies the cluster; "" if the user may
	// not get it.
	UID string
}

// Run probes an API server. It reads its version, its number of nodes and its UID.
func Run(ctx context.Context, cfg *rest.Config) (Result, error) {
	c, done, err := newClient(cfg)
	if err != nil {
		return Result{}, err
	}
	defer done()
	base := strings.TrimSuffix(cfg.Host, "/")
	var v version.Info
	if err := getJSON(ctx, c, base+"/version", &v); err != nil {
		return Result{}, SanitizeError(ctx, err)
	}
	if len(v.GitVersion) > maxVersionBytes || !versionPattern.MatchString(v.GitVersion) ||
		containsCredentials(v.GitVersion, cfg) {
		return Result{}, errNotAPIServer
	}
	out := Result{Version: v.GitVersion}
	if out.UID, err = systemUID(ctx, c, base); err == nil {
		out.Nodes, err = countNodes(ctx, c, base)
	}
	if err != nil {
		return Result{}, SanitizeError(ctx, err)
	}
	return out, nil
}

// isDenied reports whether the user lacks the permission for a request, or the path does not exist.
// Such requests are optional.
func isDenied(err error) bool {
	var status *statusError
	return errors.As(err, &status) && (status.code == http.StatusForbidden || status.code == http.StatusNotFound)
}

// systemUID returns the UID of the namespace kube-system; "" if the user may not get it.
func systemUID(ctx context.Context, c *http.Client, base string) (string, error) {
	var system struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}
	err := getJSON(ctx, c, base+"/api/v1/namespaces/kube-system", &system)
	if isDenied(err) || err == nil && !uidPattern.MatchString(system.Metadata.UID) {
		return "", nil
	}
	return system.Metadata.UID, err
}

// countNodes returns the number of nodes; nil if the user may not list them.
func countNodes(ctx context.Context, c *http.Client, base string) (*int32, error) {
	var nodes struct {
		Metadata struct {
			Remaining *int64 `json:"remainingItemCount"`
		} `json:"metadata"`
		Items []json.RawMessage `json:"items"`
	}
	err := getJSON(ctx, c, base+"/api/v1/nodes?limit=1", &nodes)
	if isDenied(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	n := int32(min(len(nodes.Items), 1)) // the request has limit=1
	if r := nodes.Metadata.Remaining; r != nil {
		n += int32(min(max(*r, 0), 1<<30))
	}
	return &n, nil
}

// containsCredentials reports whether a response contains credentials of cfg.
func containsCredentials(answer string, cfg *rest.Config) bool {
	return cfg.BearerToken != "" && strings.Contains(answer, cfg.BearerToken) || cfg.Password != "" &&
		strings.Contains(answer, cfg.Password)
}

// newClient returns a client with its own connections, and a function that closes them.
func newClient(cfg *rest.Config) (c *http.Client, done func(), err error) {
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, nil, err
	}
	t := &http.Transport{Proxy: cfg.Proxy, TLSClientConfig: tlsConfig, DisableCompression: true,
		MaxResponseHeaderBytes: maxHeaderBytes}
	rt, err := rest.HTTPWrappersForConfig(cfg, t)
	if err != nil {
		return nil, nil, err
	}
	// Redirects are not followed: they would send the credentials to another address than that of
	// the kubeconfig.
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Transport: rt, CheckRedirect: noRedirect}, t.CloseIdleConnections, nil
}

// getJSON gets an address and decodes the response.
func getJSON(ctx context.Context, c *http.Client, address string, into any) error {
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
	body, err := io.ReadAll(io.LimitReader(res.Body, maxResponseBytes))
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return &statusError{path: req.URL.Path, code: res.StatusCode}
	}
	if json.Unmarshal(body, into) != nil {
		return errNotAPIServer
	}
	return nil
}

// SanitizeError returns an error for a failed request that omits everything that differs between
// attempts, such as the local port or the time, and everything that the untrusted server sent.
func SanitizeError(ctx context.Context, err error) error {
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
		return errors.New("the request timed out")
	case errors.As(err, &status), errors.Is(err, errNotAPIServer):
		return err
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return errors.New("the server's certificate has expired, or is not valid yet")
	case errors.As(err, &invalid):
		return errors.New("the server's certificate is not valid")
	case errors.As(err, &host):
		return errors.New("the server's certificate is for another address")
	case errors.As(err, &unknown):
		return errors.New("the server's certificate is signed by an authority that the kubeconfig does not contain")
	case errors.As(err, &name):
		return errors.New("the server's host name can't be resolved")
	case errors.As(err, &errno):
		return errors.New(errno.Error())
	case errors.As(err, &op):
		return errors.New("the connection fails at " + op.Op)
	}
	return errors.New("the server does not respond like an API server")
}
