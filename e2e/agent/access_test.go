package agent_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ksctl/gitops/internal/agent/agentpb"
)

// authority is a CA that signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// issue creates a certificate and its key in PEM. If by is nil, it is a CA certificate.
func issue(c *x509.Certificate, by *authority) (cert, key []byte, a *authority) {
	GinkgoHelper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour),
		time.Now().Add(time.Hour)
	parent, signer := c, private
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &private.PublicKey, signer)
	Expect(err).NotTo(HaveOccurred())
	keyDER, err := x509.MarshalECPrivateKey(private)
	Expect(err).NotTo(HaveOccurred())
	signed, err := x509.ParseCertificate(der)
	Expect(err).NotTo(HaveOccurred())
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	key = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
	return cert, key, &authority{signed, private, cert}
}

func newAuthority(name string) *authority {
	GinkgoHelper()
	_, _, a := issue(&x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}, nil)
	return a
}

// clientCertificate issues a client certificate.
func (a *authority) clientCertificate() []tls.Certificate {
	GinkgoHelper()
	cert, key, _ := issue(&x509.Certificate{Subject: pkix.Name{CommonName: "controller"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, a)
	pair, err := tls.X509KeyPair(cert, key)
	Expect(err).NotTo(HaveOccurred())
	return []tls.Certificate{pair}
}

var _ = Describe("A client of the agent", func() {
	It("is authenticated by a certificate or a token, also after both are rotated", func(ctx SpecContext) {
		folder := GinkgoT().TempDir()
		write := func(name string, data []byte) string {
			GinkgoHelper()
			path := filepath.Join(folder, name)
			Expect(os.WriteFile(path, data, 0o600)).To(Succeed())
			return path
		}
		ours, theirs := newAuthority("ours"), newAuthority("theirs")
		cert, key, _ := issue(&x509.Certificate{DNSNames: []string{"agent.ksctl.svc"},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, ours)
		const token, next = "a-token-that-is-long-enough", "the-next-token-that-is-long-enough"
		r := newTestCluster(ctx, 0, "--tls", "--tls-cert="+write("crt", cert), "--tls-key="+write("key", key),
			"--client-ca="+write("ca", ours.pem), "--token-file="+write("token", []byte(token)))
		connect := func(certs []tls.Certificate) *grpc.ClientConn {
			GinkgoHelper()
			roots := x509.NewCertPool()
			roots.AddCert(ours.cert)
			conn, err := grpc.NewClient(r.agent.address,
				grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots,
					ServerName: "agent.ksctl.svc", Certificates: certs})))
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(func() { _ = conn.Close() })
			return conn
		}
		call := func(conn *grpc.ClientConn, token string) codes.Code {
			ctx := context.Context(ctx)
			if token != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
			}
			_, err := agentpb.NewWorkersClient(conn).List(ctx, &agentpb.ListRequest{})
			return status.Code(err)
		}
		nobody, known, stranger := connect(nil), connect(ours.clientCertificate()), connect(theirs.clientCertificate())
		Expect(call(known, "")).To(Equal(codes.OK))
		Expect(call(nobody, token)).To(Equal(codes.OK))
		Expect(call(nobody, "")).To(Equal(codes.Unauthenticated))
		Expect(call(nobody, next)).To(Equal(codes.Unauthenticated))
		Expect(call(stranger, "")).To(Equal(codes.Unauthenticated))
		res, err := healthpb.NewHealthClient(nobody).Check(ctx, &healthpb.HealthCheckRequest{})
		Expect(err).NotTo(HaveOccurred())
		Expect(res.GetStatus()).To(Equal(healthpb.HealthCheckResponse_SERVING))

		write("ca", theirs.pem)
		write("token", []byte(next))
		Eventually(ctx, func() codes.Code { return call(nobody, next) }).WithTimeout(soon).Should(Equal(codes.OK))
		Expect(call(nobody, token)).To(Equal(codes.Unauthenticated))
		Eventually(ctx, func() codes.Code { return call(stranger, "") }).WithTimeout(soon).Should(Equal(codes.OK))
		Expect(call(known, "")).To(Equal(codes.Unauthenticated))
		for _, secret := range []string{token, next} {
			Expect(r.agent.logs()).NotTo(ContainSubstring(secret))
		}
	})

	It("is never served with incomplete authentication flags: the agent does not start", func(ctx SpecContext) {
		for flags, says := range map[string]string{"--tls-cert=x": "set --tls-cert and --tls-key",
			"--token-file=x": "set --tls-cert and --tls-key"} {
			p := startProcess(ctx, GinkgoT().TempDir(), "--cluster-name=demo", "--provisioner=kwok", flags)
			Eventually(ctx, p.done).WithTimeout(soon).Should(BeClosed())
			Expect(p.err).To(HaveOccurred())
			Expect(p.logs()).To(ContainSubstring(says))
		}
	})
})
