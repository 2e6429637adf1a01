package signatures

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/testing/ca"
	"github.com/sigstore/sigstore-go/pkg/tlog"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
)

// Sigstore is a certificate authority, a transparency log and a timestamp
// authority, with which identities sign as Cosign does without a key.
type Sigstore struct {
	ca *ca.VirtualSigstore
}

// NewSigstore makes one that nobody knows.
func NewSigstore() (*Sigstore, error) {
	made, err := ca.NewVirtualSigstore()
	if err != nil {
		return nil, err
	}
	return &Sigstore{ca: made}, nil
}

// Without leaves something out of a trusted root, or adds it.
type Without struct {
	// Log leaves out the transparency log, Timestamps the timestamp authority and
	// Authority the certificate authority.
	Log, Timestamps, Authority bool
	// Nothing but: the certificate log, in which no certificate stands here, is added.
	CertificateLog bool
}

// TrustedRoot is the trusted_root.json of the authorities.
func (s *Sigstore) TrustedRoot(w Without) ([]byte, error) {
	var authorities []root.CertificateAuthority
	var stamps []root.TimestampingAuthority
	logs, certificateLogs := map[string]*root.TransparencyLog{}, map[string]*root.TransparencyLog{}
	if !w.Authority {
		authorities = s.ca.FulcioCertificateAuthorities()
	}
	if !w.Timestamps {
		stamps = s.ca.TimestampingAuthorities()
	}
	if !w.Log {
		logs = named(s.ca.RekorLogs())
	}
	if w.CertificateLog {
		certificateLogs = named(s.ca.CTLogs())
	}
	made, err := root.NewTrustedRoot(root.TrustedRootMediaType01, authorities, certificateLogs, stamps, logs)
	if err != nil {
		return nil, err
	}
	return made.MarshalJSON()
}

// named gives logs their ids as they stand in a file.
func named(logs map[string]*root.TransparencyLog) map[string]*root.TransparencyLog {
	for id, log := range logs {
		if raw, err := hex.DecodeString(id); err == nil {
			log.ID = raw
		}
	}
	return logs
}

// Beside signs as Cosign up to version 2 does. The log says that it was done
// that long from now.
func (s *Sigstore) Beside(ctx context.Context, a Artifact, subject, issuer string, later time.Duration) error {
	signed, err := simplePayload(a)
	if err != nil {
		return err
	}
	e, err := s.ca.SignAtTime(subject, issuer, signed, time.Now().Add(later))
	if err != nil {
		return err
	}
	content, err := e.SignatureContent()
	if err != nil {
		return err
	}
	m, err := s.material(e)
	if err != nil {
		return err
	}
	annotations, err := annotate(m)
	if err != nil {
		return err
	}
	return pushBeside(ctx, a, signed, content.Signature(), annotations)
}

// Referring signs as Cosign 3 does. The log says that it was done that long
// from now.
func (s *Sigstore) Referring(ctx context.Context, a Artifact, subject, issuer string, later time.Duration) error {
	said, err := statement(a, SignPredicate)
	if err != nil {
		return err
	}
	e, err := s.ca.AttestAtTime(subject, issuer, said, time.Now().Add(later), true)
	if err != nil {
		return err
	}
	content, err := e.SignatureContent()
	if err != nil {
		return err
	}
	m, err := s.material(e)
	if err != nil {
		return err
	}
	return pushBundle(ctx, a, content.EnvelopeContent().RawEnvelope(), m)
}

// material is what a bundle says of who signed, and when.
func (s *Sigstore) material(e *ca.TestEntity) (*protobundle.VerificationMaterial, error) {
	content, err := e.VerificationContent()
	if err != nil {
		return nil, err
	}
	entries, err := e.TlogEntries()
	if err != nil {
		return nil, err
	}
	stamps, err := e.Timestamps()
	if err != nil {
		return nil, err
	}
	m := &protobundle.VerificationMaterial{
		Content:                   &protobundle.VerificationMaterial_Certificate{Certificate: &protocommon.X509Certificate{RawBytes: content.Certificate().Raw}},
		TimestampVerificationData: &protobundle.TimestampVerificationData{},
	}
	for _, entry := range entries {
		whole, err := s.promise(entry.TransparencyLogEntry())
		if err != nil {
			return nil, err
		}
		m.TlogEntries = append(m.TlogEntries, whole)
	}
	for _, stamp := range stamps {
		m.TimestampVerificationData.Rfc3161Timestamps = append(m.TimestampVerificationData.Rfc3161Timestamps, &protocommon.RFC3161SignedTimestamp{SignedTimestamp: stamp})
	}
	return m, nil
}

// promise adds the log's signature, which an entry in memory does not give out.
func (s *Sigstore) promise(e *protorekor.TransparencyLogEntry) (*protorekor.TransparencyLogEntry, error) {
	var kind struct {
		Kind    string `json:"kind"`
		Version string `json:"apiVersion"`
	}
	if err := json.Unmarshal(e.CanonicalizedBody, &kind); err != nil {
		return nil, err
	}
	e.KindVersion = &protorekor.KindVersion{Kind: kind.Kind, Version: kind.Version}
	signed, err := s.ca.RekorSignPayload(tlog.RekorPayload{
		Body: base64.StdEncoding.EncodeToString(e.CanonicalizedBody), IntegratedTime: e.IntegratedTime, LogIndex: e.LogIndex, LogID: hex.EncodeToString(e.LogId.KeyId),
	})
	if err != nil {
		return nil, err
	}
	e.InclusionPromise = &protorekor.InclusionPromise{SignedEntryTimestamp: signed}
	return e, nil
}

// annotate says the same as Cosign up to version 2 does.
func annotate(m *protobundle.VerificationMaterial) (map[string]string, error) {
	certificates, err := cryptoutils.UnmarshalCertificatesFromPEM(cryptoutils.PEMEncode(cryptoutils.CertificatePEMType, m.GetCertificate().RawBytes))
	if err != nil {
		return nil, err
	}
	if len(m.TlogEntries) != 1 {
		return nil, errors.New("not one entry of the log")
	}
	certificate, err := cryptoutils.MarshalCertificateToPEM(certificates[0])
	if err != nil {
		return nil, err
	}
	entry, err := json.Marshal(logged(m.TlogEntries[0]))
	if err != nil {
		return nil, err
	}
	stamp, err := json.Marshal(map[string][]byte{"SignedRFC3161Timestamp": m.TimestampVerificationData.Rfc3161Timestamps[0].SignedTimestamp})
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"dev.sigstore.cosign/certificate": string(certificate), "dev.sigstore.cosign/bundle": string(entry), "dev.sigstore.cosign/rfc3161timestamp": string(stamp),
	}, nil
}

func logged(e *protorekor.TransparencyLogEntry) map[string]any {
	return map[string]any{
		"SignedEntryTimestamp": e.InclusionPromise.SignedEntryTimestamp,
		"Payload": map[string]any{
			"body": e.CanonicalizedBody, "integratedTime": e.IntegratedTime, "logIndex": e.LogIndex, "logID": hex.EncodeToString(e.LogId.KeyId),
		},
	}
}
