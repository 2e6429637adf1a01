package kubeconfig

import (
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

// MaxBytes is the largest kubeconfig that is read: what an object of etcd can hold.
const MaxBytes = 1 << 20

// maxServer is the longest address of an API server that is taken, in bytes.
const maxServer = 2048

// Options of reading a kubeconfig.
type Options struct {
	// Context to use; the current one of the kubeconfig when empty, or its only one.
	Context string
	// AllowInsecure takes connections that anybody may listen to or answer.
	AllowInsecure bool
}

// Access is how one cluster is reached. It holds secrets, and is not changed.
type Access struct {
	// Context that it was read from.
	Context string
	// Server is the address of the API server.
	Server string
	// Expires is when the client certificate does; zero if there is none.
	Expires time.Time

	config clientcmdapi.Config
}

// Error says why a kubeconfig is refused. It quotes names, and no values.
type Error struct{ Message string }

// Error implements error.
func (e *Error) Error() string { return "kubeconfig: " + e.Message }

func refuse(format string, args ...any) error { return &Error{Message: fmt.Sprintf(format, args...)} }

// Read reads a kubeconfig. Its errors are of type *Error.
func Read(data []byte, o Options) (*Access, error) {
	if len(data) > MaxBytes {
		return nil, refuse("it has %d bytes; at most %d are read", len(data), MaxBytes)
	}
	all, err := clientcmd.Load(data)
	if err != nil {
		return nil, refuse("it can't be read as one") // what is wrong with it may quote it
	}
	name, err := choose(all, o.Context)
	if err != nil {
		return nil, err
	}
	ctx := all.Contexts[name]
	cluster, user := all.Clusters[ctx.Cluster], all.AuthInfos[ctx.AuthInfo]
	if cluster == nil {
		return nil, refuse("its context %q names the cluster %q, which it does not have", name, ctx.Cluster)
	}
	if user == nil {
		return nil, refuse("its context %q names the user %q, which it does not have", name, ctx.AuthInfo)
	}
	if err := checkCluster(ctx.Cluster, cluster, o.AllowInsecure); err != nil {
		return nil, err
	}
	expires, err := checkUser(ctx.AuthInfo, user)
	if err != nil {
		return nil, err
	}
	a := &Access{Context: name, Server: cluster.Server, Expires: expires, config: only(name, cluster, user)}
	if _, err := a.Config(); err != nil {
		return nil, err
	}
	return a, nil
}

// choose returns the context that is wanted.
func choose(c *clientcmdapi.Config, wanted string) (string, error) {
	name := wanted
	if name == "" {
		name = c.CurrentContext
	}
	if name == "" && len(c.Contexts) == 1 {
		for only := range c.Contexts {
			name = only
		}
	}
	switch {
	case name == "":
		return "", refuse("it has no current-context, and %d contexts to choose from", len(c.Contexts))
	case c.Contexts[name] == nil:
		return "", refuse("it has no context %q", name)
	}
	return name, nil
}

func checkCluster(name string, c *clientcmdapi.Cluster, insecure bool) error {
	server, err := url.Parse(c.Server)
	switch {
	case c.Server == "":
		return refuse("the cluster %q has no server", name)
	case err != nil || len(c.Server) > maxServer || server.Host == "" || server.User != nil || server.RawQuery != "" || server.ForceQuery || server.Fragment != "":
		return refuse("the server of the cluster %q is no address of an API server, like https://api.example.com:6443", name)
	case server.Scheme != "https" && (server.Scheme != "http" || !insecure):
		return refuse("the server of the cluster %q is not reached by https", name)
	case c.InsecureSkipTLSVerify && !insecure:
		return refuse("the cluster %q has insecure-skip-tls-verify: put its certificate authority into certificate-authority-data instead", name)
	case c.CertificateAuthority != "":
		return refuse("the cluster %q names a file in certificate-authority: put its content into certificate-authority-data", name)
	case len(c.CertificateAuthorityData) > 0 && !certificates(c.CertificateAuthorityData):
		return refuse("the cluster %q has no certificate in certificate-authority-data", name)
	}
	if c.ProxyURL == "" {
		return nil
	}
	proxy, err := url.Parse(c.ProxyURL)
	if err != nil || proxy.Host == "" || !slices.Contains([]string{"http", "https", "socks5"}, proxy.Scheme) {
		return refuse("the proxy-url of the cluster %q is no address of a proxy by http, https or socks5", name)
	}
	return nil
}

// certificates is true for PEM of certificates that can be read.
func certificates(data []byte) bool { return x509.NewCertPool().AppendCertsFromPEM(data) }

// checkUser returns when the user's certificate ends.
func checkUser(name string, u *clientcmdapi.AuthInfo) (expires time.Time, err error) {
	switch {
	case u.Exec != nil:
		return expires, refuse("the user %q runs a program (exec), which is refused: use a token or a client certificate", name)
	case u.AuthProvider != nil:
		return expires, refuse("the user %q has an auth-provider, which is refused: use a token or a client certificate", name)
	case u.Impersonate != "" || u.ImpersonateUID != "" || len(u.ImpersonateGroups)+len(u.ImpersonateUserExtra) > 0:
		return expires, refuse("the user %q impersonates another (as), which is refused: use the other's own credentials", name)
	}
	for field, path := range map[string]string{"client-certificate": u.ClientCertificate, "client-key": u.ClientKey, "tokenFile": u.TokenFile} {
		if path != "" {
			return expires, refuse("the user %q names a file in %s: put its content into the kubeconfig", name, field)
		}
	}
	if u.Token != "" && u.Username+u.Password != "" {
		return expires, refuse("the user %q has a token and a password: leave one of the two out", name)
	}
	switch has := len(u.ClientCertificateData) > 0; {
	case has != (len(u.ClientKeyData) > 0):
		return expires, refuse("the user %q has one of client-certificate-data and client-key-data without the other", name)
	case has:
		return checkPair(name, u)
	case u.Token == "" && u.Username == "":
		return expires, refuse("the user %q has no credentials: neither a token nor a client certificate", name)
	}
	return expires, nil
}

func checkPair(name string, u *clientcmdapi.AuthInfo) (expires time.Time, err error) {
	pair, err := tls.X509KeyPair(u.ClientCertificateData, u.ClientKeyData)
	if err != nil || pair.Leaf == nil {
		return expires, refuse("the client certificate of the user %q can't be read, or its key is another's", name)
	}
	return pair.Leaf.NotAfter, nil
}

// only is a kubeconfig of one context, with nothing in it that is not needed.
func only(name string, cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) clientcmdapi.Config {
	out := *clientcmdapi.NewConfig()
	out.CurrentContext = name
	out.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	out.Clusters[name] = &clientcmdapi.Cluster{Server: cluster.Server, TLSServerName: cluster.TLSServerName, ProxyURL: cluster.ProxyURL,
		InsecureSkipTLSVerify: cluster.InsecureSkipTLSVerify, CertificateAuthorityData: cluster.CertificateAuthorityData}
	out.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: user.Token, Username: user.Username, Password: user.Password,
		ClientCertificateData: user.ClientCertificateData, ClientKeyData: user.ClientKeyData}
	return out
}

// YAML is a kubeconfig of this cluster alone, always the same for the same access.
func (a *Access) YAML() ([]byte, error) { return clientcmd.Write(a.config) }

// Config for a client, without limits on the client's side.
func (a *Access) Config() (*rest.Config, error) {
	cfg, err := clientcmd.NewDefaultClientConfig(a.config, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, refuse("no client can be made of its context %q", a.Context)
	}
	cfg.QPS = -1
	return cfg, nil
}

// Format implements fmt.Formatter: access is never printed.
func (a Access) Format(s fmt.State, _ rune) { _, _ = fmt.Fprintf(s, "access to %s", a.Server) }
