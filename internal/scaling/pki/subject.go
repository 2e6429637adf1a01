package pki

import (
	"crypto/x509"
	"net"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Parts of the URI that identifies an autoscaler: ksctl://autoscaler/<namespace>/<name>.
const (
	uriScheme = "ksctl"
	uriHost   = "autoscaler"
)

// ClientURI returns the URI in the client certificate of a KsctlAutoScaler's Cluster Autoscaler.
func ClientURI(key types.NamespacedName) *url.URL {
	return &url.URL{Scheme: uriScheme, Host: uriHost, Path: "/" + key.Namespace + "/" + key.Name}
}

// Subject identifies the holder of a certificate: either a server or a client.
type Subject struct {
	// Hosts are the DNS names and IP addresses of a server; empty for a client.
	Hosts []string
	// Client is the KsctlAutoScaler whose Cluster Autoscaler is the client; empty for a server.
	Client types.NamespacedName
}

// ServerSubject returns the subject of a server with the given DNS names and IP addresses.
func ServerSubject(hosts ...string) Subject { return Subject{Hosts: hosts} }

// ClientSubject returns the subject of a KsctlAutoScaler's Cluster Autoscaler.
func ClientSubject(key types.NamespacedName) Subject { return Subject{Client: key} }

// validate returns an *Error if the subject is invalid.
func (s Subject) validate() error {
	switch server, client := len(s.Hosts) > 0, s.Client != (types.NamespacedName{}); {
	case server == client:
		return errorf("", "a certificate is either for the hosts of a server or for one client")
	case client:
		return validateClient(s.Client)
	}
	for _, h := range s.Hosts {
		if net.ParseIP(h) == nil && len(validation.IsDNS1123Subdomain(h)) > 0 {
			return errorf("hosts", "%q is neither a lowercase DNS name nor an IP address", h)
		}
	}
	return nil
}

func validateClient(key types.NamespacedName) error {
	if len(validation.IsDNS1123Label(key.Namespace)) > 0 || len(validation.IsDNS1123Subdomain(key.Name)) > 0 {
		return errorf("client", "%q is not of the form <namespace>/<name>", key.String())
	}
	return nil
}

// applyTo sets the subject, the alternative names and the key usage of a certificate template.
func (s Subject) applyTo(c *x509.Certificate) {
	c.Subject.Organization = []string{organization}
	if len(s.Hosts) == 0 {
		c.Subject.CommonName = "autoscaler"
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		c.URIs = []*url.URL{ClientURI(s.Client)}
		return
	}
	c.Subject.CommonName = "node groups"
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	c.DNSNames, c.IPAddresses = s.subjectAltNames()
}

// subjectAltNames returns the hosts split into DNS names and IP addresses, sorted, without
// duplicates.
func (s Subject) subjectAltNames() (dns []string, ips []net.IP) {
	for _, h := range slices.Compact(slices.Sorted(slices.Values(s.Hosts))) {
		if ip := net.ParseIP(h); ip != nil {
			ips = append(ips, ip)
		} else {
			dns = append(dns, h)
		}
	}
	return dns, ips
}

// matches reports whether a certificate is for this subject and for nothing else.
func (s Subject) matches(c *x509.Certificate) bool {
	if len(s.Hosts) == 0 {
		key, err := ClientOf(c)
		return err == nil && key == s.Client && hasOnlyUsage(c, x509.ExtKeyUsageClientAuth) &&
			len(c.DNSNames)+len(c.IPAddresses) == 0
	}
	dns, ips := s.subjectAltNames()
	return hasOnlyUsage(c, x509.ExtKeyUsageServerAuth) && len(c.URIs) == 0 && slices.Equal(c.DNSNames, dns) &&
		slices.EqualFunc(c.IPAddresses, ips, net.IP.Equal)
}

func hasOnlyUsage(c *x509.Certificate, use x509.ExtKeyUsage) bool {
	return !c.IsCA && slices.Equal(c.ExtKeyUsage, []x509.ExtKeyUsage{use})
}

// ClientOf returns the KsctlAutoScaler that a client certificate identifies. The caller has
// verified the certificate before. The error is an *Error.
func ClientOf(c *x509.Certificate) (types.NamespacedName, error) {
	none := types.NamespacedName{}
	if len(c.URIs) != 1 {
		return none, errorf("", "the certificate has %d URIs; the certificate of an autoscaler has exactly one",
			len(c.URIs))
	}
	namespace, name, _ := strings.Cut(strings.TrimPrefix(c.URIs[0].Path, "/"), "/")
	key := types.NamespacedName{Namespace: namespace, Name: name}
	if err := validateClient(key); err != nil || c.URIs[0].String() != ClientURI(key).String() {
		return none, errorf("", "the URI of the certificate is not of the form %s://%s/<namespace>/<name>", uriScheme,
			uriHost)
	}
	return key, nil
}
