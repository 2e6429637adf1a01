package kubeconfig

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"slices"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// MaxBytes is the maximum size of a kubeconfig: the size limit of an object in etcd.
const MaxBytes = 1 << 20

// maxServerBytes is the maximum length of the address of an API server.
const maxServerBytes = 2048

// Options of Read.
type Options struct {
	// Context is the context to use; "" means the current context, or the only one.
	Context string
	// AllowInsecure accepts plain HTTP and TLS without verification of the server.
	AllowInsecure bool
}

// Access holds the address and the credentials of one cluster. It contains secrets. It is
// immutable.
type Access struct {
	// Context is the name of the context in the kubeconfig.
	Context string
	// Server is the address of the API server.
	Server string
	// Expires is the expiry time of the client certificate; zero if there is none.
	Expires time.Time

	config clientcmdapi.Config
}

// Error reports why a kubeconfig is refused. It quotes names but no values.
type Error struct{ Message string }

// Error implements error.
func (e *Error) Error() string { return "kubeconfig: " + e.Message }

func newError(format string, args ...any) error { return &Error{Message: fmt.Sprintf(format, args...)} }

// Read reads a kubeconfig. Its errors are of type *Error.
func Read(data []byte, o Options) (*Access, error) {
	if len(data) > MaxBytes {
		return nil, newError("%d bytes exceed the limit of %d bytes", len(data), MaxBytes)
	}
	all, err := clientcmd.Load(data)
	if err != nil {
		return nil, newError("it can't be parsed") // err is omitted because it may quote secrets
	}
	name, err := selectContext(all, o.Context)
	if err != nil {
		return nil, err
	}
	ctx := all.Contexts[name]
	cluster, user := all.Clusters[ctx.Cluster], all.AuthInfos[ctx.AuthInfo]
	if cluster == nil {
		return nil, newError("the context %q refers to the cluster %q, which does not exist", name, ctx.Cluster)
	}
	if user == nil {
		return nil, newError("the context %q refers to the user %q, which does not exist", name, ctx.AuthInfo)
	}
	if err := checkCluster(ctx.Cluster, cluster, o.AllowInsecure); err != nil {
		return nil, err
	}
	expires, err := checkUser(ctx.AuthInfo, user)
	if err != nil {
		return nil, err
	}
	a := &Access{Context: name, Server: cluster.Server, Expires: expires, config: minimalConfig(name, cluster, user)}
	if _, err := a.Config(); err != nil {
		return nil, err
	}
	return a, nil
}

// selectContext returns the name of the context to use.
func selectContext(c *clientcmdapi.Config, wanted string) (string, error) {
	name := cmp.Or(wanted, c.CurrentContext)
	if name == "" && len(c.Contexts) == 1 {
		for only := range c.Contexts {
			name = only
		}
	}
	switch {
	case name == "":
		return "", newError("current-context is not set, and there are %d contexts: set it", len(c.Contexts))
	case c.Contexts[name] == nil:
		return "", newError("the context %q does not exist", name)
	}
	return name, nil
}

func checkCluster(name string, c *clientcmdapi.Cluster, insecure bool) error {
	server, err := url.Parse(c.Server)
	switch {
	case c.Server == "":
		return newError("the cluster %q has no server", name)
	case err != nil || len(c.Server) > maxServerBytes || server.Host == "" || server.User != nil ||
		server.RawQuery != "" || server.ForceQuery || server.Fragment != "":
		return newError("the server of the cluster %q is not the address of an API server, like "+
			"https://api.example.com:6443", name)
	case server.Scheme != "https" && (server.Scheme != "http" || !insecure):
		return newError("the server of the cluster %q does not use https", name)
	case c.InsecureSkipTLSVerify && !insecure:
		return newError("the cluster %q has insecure-skip-tls-verify: put its certificate authority into "+
			"certificate-authority-data instead", name)
	case c.CertificateAuthority != "":
		return newError("the cluster %q names a file in certificate-authority: put its content into "+
			"certificate-authority-data", name)
	case len(c.CertificateAuthorityData) > 0 && !x509.NewCertPool().AppendCertsFromPEM(c.CertificateAuthorityData):
		return newError("the cluster %q has no certificate in certificate-authority-data", name)
	}
	if c.ProxyURL == "" {
		return nil
	}
	proxy, err := url.Parse(c.ProxyURL)
	if err != nil || proxy.Host == "" || !slices.Contains([]string{"http", "https", "socks5"}, proxy.Scheme) {
		return newError("the proxy-url of the cluster %q is not an http, https or socks5 address", name)
	}
	return nil
}

// checkUser returns the expiry time of the user's certificate; zero if there is none.
func checkUser(name string, u *clientcmdapi.AuthInfo) (expires time.Time, err error) {
	switch {
	case u.Exec != nil:
		return expires,
			newError("the user %q runs a program (exec), which is refused: use a token or a client certificate", name)
	case u.AuthProvider != nil:
		return expires,
			newError("the user %q has an auth-provider, which is refused: use a token or a client certificate", name)
	case u.Impersonate != "" || u.ImpersonateUID != "" || len(u.ImpersonateGroups)+len(u.ImpersonateUserExtra) > 0:
		return expires,
			newError("the user %q impersonates another user (as), which is refused: use the credentials of that user",
				name)
	}
	for field, path := range map[string]string{"client-certificate": u.ClientCertificate, "client-key": u.ClientKey,
		"tokenFile": u.TokenFile} {
		if path != "" {
			return expires, newError("the user %q names a file in %s: put its content into the kubeconfig", name, field)
		}
	}
	if u.Token != "" && u.Username+u.Password != "" {
		return expires, newError("the user %q has a token and a password: set only one of them", name)
	}
	switch hasCert := len(u.ClientCertificateData) > 0; {
	case hasCert != (len(u.ClientKeyData) > 0):
		return expires, newError("the user %q has one of client-certificate-data and client-key-data without the other",
			name)
	case hasCert:
		pair, err := tls.X509KeyPair(u.ClientCertificateData, u.ClientKeyData)
		if err != nil || pair.Leaf == nil {
			return expires, newError("the client certificate of the user %q can't be parsed, or does not match its key",
				name)
		}
		return pair.Leaf.NotAfter, nil
	case u.Token == "" && u.Username == "":
		return expires, newError("the user %q has no credentials: neither a token nor a client certificate", name)
	}
	return expires, nil
}

// minimalConfig returns a kubeconfig with one context and only the required fields.
func minimalConfig(name string, cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) clientcmdapi.Config {
	out := *clientcmdapi.NewConfig()
	out.CurrentContext = name
	out.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	out.Clusters[name] = &clientcmdapi.Cluster{Server: cluster.Server, TLSServerName: cluster.TLSServerName,
		ProxyURL:                 cluster.ProxyURL,
		InsecureSkipTLSVerify:    cluster.InsecureSkipTLSVerify,
		CertificateAuthorityData: cluster.CertificateAuthorityData}
	out.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: user.Token, Username: user.Username, Password: user.Password,
		ClientCertificateData: user.ClientCertificateData, ClientKeyData: user.ClientKeyData}
	return out
}

// YAML returns a kubeconfig for this cluster only. It is deterministic.
func (a *Access) YAML() ([]byte, error) { return clientcmd.Write(a.config) }

// Config returns a client configuration without client-side rate limits.
func (a *Access) Config() (*rest.Config, error) {
	cfg, err := clientcmd.NewDefaultClientConfig(a.config, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, newError("the context %q does not yield a client configuration", a.Context)
	}
	cfg.QPS = -1
	return cfg, nil
}

// Format implements fmt.Formatter. It prints the address only, never the credentials.
func (a Access) Format(s fmt.State, _ rune) { _, _ = fmt.Fprintf(s, "access to %s", a.Server) }
