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

// Of the URI by which an autoscaler is known: ksctl://autoscaler/<namespace>/<name>.
const (
	uriScheme = "ksctl"
	uriHost   = "autoscaler"
)

// Identity is the URI that the certificate of a KsctlAutoScaler's Cluster Autoscaler has.
func Identity(key types.NamespacedName) *url.URL {
	return &url.URL{Scheme: uriScheme, Host: uriHost, Path: "/" + key.Namespace + "/" + key.Name}
}

// Subject is who a certificate is for: a server by its hosts, or a client by the autoscaler that
// it is of.
type Subject struct {
	// Hosts are DNS names and IP addresses of a server.
	Hosts []string
	// Client is the KsctlAutoScaler.
	Client types.NamespacedName
}

// Server is a server that is reached by these DNS names and IP addresses.
func Server(hosts ...string) Subject { return Subject{Hosts: hosts} }

// Client is the autoscaler of a KsctlAutoScaler.
func Client(key types.NamespacedName) Subject { return Subject{Client: key} }

// check says what is wrong with it.
func (s Subject) check() error {
	switch server, client := len(s.Hosts) > 0, s.Client != (types.NamespacedName{}); {
	case server == client:
		return refuse("", "a certificate is for the hosts of a server, or for one client")
	case client:
		return checkKey(s.Client)
	}
	for _, h := range s.Hosts {
		if net.ParseIP(h) == nil && len(validation.IsDNS1123Subdomain(h)) > 0 {
			return refuse("hosts", "%q is neither a DNS name in lower case nor an IP address", h)
		}
	}
	return nil
}

func checkKey(key types.NamespacedName) error {
	if len(validation.IsDNS1123Label(key.Namespace)) > 0 || len(validation.IsDNS1123Subdomain(key.Name)) > 0 {
		return refuse("client", "%q is no <namespace>/<name>", key.String())
	}
	return nil
}

// write puts it into a certificate.
func (s Subject) write(c *x509.Certificate) {
	c.Subject.Organization = []string{organization}
	if len(s.Hosts) == 0 {
		c.Subject.CommonName = "autoscaler"
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		c.URIs = []*url.URL{Identity(s.Client)}
		return
	}
	c.Subject.CommonName = "node groups"
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	c.DNSNames, c.IPAddresses = s.names()
}

// names are the hosts by their kind, each once and in order.
func (s Subject) names() (dns []string, ips []net.IP) {
	hosts := slices.Clone(s.Hosts)
	slices.Sort(hosts)
	for _, h := range slices.Compact(hosts) {
		if ip := net.ParseIP(h); ip != nil {
			ips = append(ips, ip)
		} else {
			dns = append(dns, h)
		}
	}
	return dns, ips
}

// is true for a certificate that is for this subject, and for nothing else.
func (s Subject) is(c *x509.Certificate) bool {
	if len(s.Hosts) == 0 {
		key, err := ClientOf(c)
		return err == nil && key == s.Client && onlyFor(c, x509.ExtKeyUsageClientAuth) && len(c.DNSNames)+len(c.IPAddresses) == 0
	}
	dns, ips := s.names()
	return onlyFor(c, x509.ExtKeyUsageServerAuth) && len(c.URIs) == 0 && slices.Equal(c.DNSNames, dns) && slices.EqualFunc(c.IPAddresses, ips, net.IP.Equal)
}

func onlyFor(c *x509.Certificate, use x509.ExtKeyUsage) bool {
	return !c.IsCA && slices.Equal(c.ExtKeyUsage, []x509.ExtKeyUsage{use})
}

// ClientOf is the KsctlAutoScaler whose autoscaler a certificate is for. Whether the certificate is
// to be trusted has been found out before. The error is an *Error.
func ClientOf(c *x509.Certificate) (types.NamespacedName, error) {
	none := types.NamespacedName{}
	if len(c.URIs) != 1 {
		return none, refuse("", "the certificate has %d URIs: that of an autoscaler has one", len(c.URIs))
	}
	namespace, name, _ := strings.Cut(strings.TrimPrefix(c.URIs[0].Path, "/"), "/")
	key := types.NamespacedName{Namespace: namespace, Name: name}
	if err := checkKey(key); err != nil || c.URIs[0].String() != Identity(key).String() {
		return none, refuse("", "the URI of the certificate is not of the form %s://%s/<namespace>/<name>", uriScheme, uriHost)
	}
	return key, nil
}
