package signatures

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"time"

	"github.com/notaryproject/notation-core-go/signature"
	"github.com/notaryproject/notation-core-go/signature/jws"
	"golang.org/x/crypto/ocsp"
)

const notationType = "application/vnd.cncf.notary.signature"

// Notary signs as Notation does, with a certificate of its own CA.
type Notary struct {
	root, leaf   *x509.Certificate
	rootKey, key *ecdsa.PrivateKey
	signingTime  time.Time
}

// NewNotary creates a CA and a signing certificate that is valid for one hour, beginning at from.
// The signing time is half an hour after from. The responders are the certificate's OCSP servers.
func NewNotary(from time.Time, responders ...string) (*Notary, error) {
	rootKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	n := &Notary{rootKey: rootKey, signingTime: from.Add(30 * time.Minute)}
	subject := func(cn string) pkix.Name {
		return pkix.Name{CommonName: cn, Country: []string{"DE"}, Province: []string{"BE"},
			Organization: []string{"example"}}
	}
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: subject("authority"), NotBefore: from.Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	if n.root, err = issue(authority, authority, &rootKey.PublicKey, rootKey); err != nil {
		return nil, err
	}
	if n.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	n.leaf, err = issue(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: subject("signer"), NotBefore: from, NotAfter: from.Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
		OCSPServer: responders,
	}, n.root, &n.key.PublicKey, rootKey)
	return n, err
}

func issue(template, parent *x509.Certificate, public *ecdsa.PublicKey,
	key *ecdsa.PrivateKey) (*x509.Certificate, error) {
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(raw)
}

// PEM returns the CA's certificate.
func (n *Notary) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: n.root.Raw})
}

// OCSPResponse returns the response of the CA's OCSP responder for the signing certificate: revoked
// or good.
func (n *Notary) OCSPResponse(revoked bool) ([]byte, error) {
	now := time.Now()
	response := ocsp.Response{Status: ocsp.Good, SerialNumber: n.leaf.SerialNumber, ThisUpdate: now.Add(-time.Minute),
		NextUpdate: now.Add(time.Hour)}
	if revoked {
		response.Status, response.RevokedAt, response.RevocationReason = ocsp.Revoked, n.leaf.NotBefore,
			ocsp.KeyCompromise
	}
	return ocsp.CreateResponse(n.root, n.root, response, n.rootKey)
}

// TrustPolicy returns a Notation trust policy for every registry, with a verification level.
func TrustPolicy(level string) ([]byte, error) {
	return json.Marshal(map[string]any{"version": "1.0", "trustPolicies": []any{map[string]any{
		"name": "all", "registryScopes": []string{"*"}, "signatureVerification": map[string]any{"level": level},
		"trustStores": []string{"ca:fleet"}, "trustedIdentities": []string{"*"},
	}}})
}

// Sign signs an artifact, without expiry.
func (n *Notary) Sign(ctx context.Context, a Artifact) error { return n.SignWithExpiry(ctx, a, 0) }

// SignWithExpiry signs an artifact with a signature that is valid for a duration after the signing
// time; zero means no expiry.
func (n *Notary) SignWithExpiry(ctx context.Context, a Artifact, valid time.Duration) error {
	content, err := notationPayload(ctx, a)
	if err != nil {
		return err
	}
	signer, err := signature.NewLocalSigner([]*x509.Certificate{n.leaf, n.root}, n.key)
	if err != nil {
		return err
	}
	envelope, err := signature.NewEnvelope(jws.MediaTypeEnvelope)
	if err != nil {
		return err
	}
	request := &signature.SignRequest{
		Payload: signature.Payload{ContentType: "application/vnd.cncf.notary.payload.v1+json", Content: content},
		Signer:  signer, SigningTime: n.signingTime, SigningScheme: signature.SigningSchemeX509,
	}
	if valid > 0 {
		request.Expiry = n.signingTime.Add(valid)
	}
	raw, err := envelope.Sign(request)
	if err == nil && a.Tampered {
		raw, err = tamperEnvelope(ctx, a, raw)
	}
	if err != nil {
		return err
	}
	return a.pushReferrer(ctx, notationType, raw, jws.MediaTypeEnvelope)
}

func notationPayload(ctx context.Context, a Artifact) ([]byte, error) {
	target, err := a.descriptor(ctx, a.signedDigest())
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{"targetArtifact": map[string]any{
		"mediaType": string(target.MediaType), "digest": target.Digest.String(), "size": target.Size,
	}})
}

// tamperEnvelope replaces the payload of an envelope by one for the artifact, and keeps the
// signature.
func tamperEnvelope(ctx context.Context, a Artifact, raw []byte) ([]byte, error) {
	content, err := notationPayload(ctx, a.pushed())
	if err != nil {
		return nil, err
	}
	var envelope map[string]any
	if err := json.Unmarshal(raw, &envelope); err != nil {
		return nil, err
	}
	envelope["payload"] = base64.RawURLEncoding.EncodeToString(content)
	return json.Marshal(envelope)
}
