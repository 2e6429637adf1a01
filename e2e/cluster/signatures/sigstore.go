package signatures

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/testing/ca"
	"github.com/sigstore/sigstore-go/pkg/tlog"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
)

// Sigstore is a certificate authority, a transparency log and a timestamp authority for Cosign's
// keyless signatures.
type Sigstore struct {
	ca *ca.VirtualSigstore
}

// NewSigstore creates a Sigstore that no public trusted root contains.
func NewSigstore() (*Sigstore, error) {
	made, err := ca.NewVirtualSigstore()
	if err != nil {
		return nil, err
	}
	return &Sigstore{ca: made}, nil
}

// TrustedRootOptions select the content of a trusted root. The zero value has all authorities and
// no certificate log.
type TrustedRootOptions struct {
	// NoLog omits the transparency log, NoTimestamps the timestamp authority, and NoAuthority the
	// certificate authority.
	NoLog, NoTimestamps, NoAuthority bool
	// CertificateLog adds the certificate transparency log. No certificate is logged in it.
	CertificateLog bool
}

// TrustedRoot returns the trusted_root.json of the authorities.
func (s *Sigstore) TrustedRoot(opts TrustedRootOptions) ([]byte, error) {
	var authorities []root.CertificateAuthority
	var stamps []root.TimestampingAuthority
	logs, certificateLogs := map[string]*root.TransparencyLog{}, map[string]*root.TransparencyLog{}
	if !opts.NoAuthority {
		authorities = s.ca.FulcioCertificateAuthorities()
	}
	if !opts.NoTimestamps {
		stamps = s.ca.TimestampingAuthorities()
	}
	if !opts.NoLog {
		logs = withLogIDs(s.ca.RekorLogs())
	}
	if opts.CertificateLog {
		certificateLogs = withLogIDs(s.ca.CTLogs())
	}
	made, err := root.NewTrustedRoot(root.TrustedRootMediaType01, authorities, certificateLogs, stamps, logs)
	if err != nil {
		return nil, err
	}
	return made.MarshalJSON()
}

// withLogIDs sets the ID of each log from its hexadecimal map key, as a file has it.
func withLogIDs(logs map[string]*root.TransparencyLog) map[string]*root.TransparencyLog {
	for id, log := range logs {
		if raw, err := hex.DecodeString(id); err == nil {
			log.ID = raw
		}
	}
	return logs
}

// SignWithTag signs as Cosign up to version 2 does. The log's entry has the current time plus
// offset.
func (s *Sigstore) SignWithTag(ctx context.Context, a Artifact, subject, issuer string, offset time.Duration) error {
	signed, err := simplePayload(a)
	if err != nil {
		return err
	}
	e, err := s.ca.SignAtTime(subject, issuer, signed, time.Now().Add(offset))
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
	annotations, err := cosignAnnotations(m)
	if err != nil {
		return err
	}
	return pushSignatureTag(ctx, a, signed, content.Signature(), annotations)
}

// SignWithReferrer signs as Cosign 3 does. The log's entry has the current time plus offset.
func (s *Sigstore) SignWithReferrer(ctx context.Context, a Artifact, subject, issuer string,
	offset time.Duration) error {
	signed, err := statement(a, SignPredicate)
	if err != nil {
		return err
	}
	e, err := s.ca.AttestAtTime(subject, issuer, signed, time.Now().Add(offset), true)
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

// material returns the certificate, log entries and timestamps of a signature, for a bundle.
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
		Content: &protobundle.VerificationMaterial_Certificate{
			Certificate: &protocommon.X509Certificate{RawBytes: content.Certificate().Raw}},
		TimestampVerificationData: &protobundle.TimestampVerificationData{},
	}
	for _, entry := range entries {
		whole, err := s.withInclusionPromise(entry.TransparencyLogEntry())
		if err != nil {
			return nil, err
		}
		m.TlogEntries = append(m.TlogEntries, whole)
	}
	for _, stamp := range stamps {
		m.TimestampVerificationData.Rfc3161Timestamps = append(m.TimestampVerificationData.Rfc3161Timestamps,
			&protocommon.RFC3161SignedTimestamp{SignedTimestamp: stamp})
	}
	return m, nil
}

// withInclusionPromise adds the log's signature to an entry, because an in-memory entry does not
// expose it.
func (s *Sigstore) withInclusionPromise(e *protorekor.TransparencyLogEntry) (*protorekor.TransparencyLogEntry, error) {
	var kind struct {
		Kind    string `json:"kind"`
		Version string `json:"apiVersion"`
	}
	if err := json.Unmarshal(e.CanonicalizedBody, &kind); err != nil {
		return nil, err
	}
	e.KindVersion = &protorekor.KindVersion{Kind: kind.Kind, Version: kind.Version}
	signed, err := s.ca.RekorSignPayload(tlog.RekorPayload{
		Body: base64.StdEncoding.EncodeToString(e.CanonicalizedBody), IntegratedTime: e.IntegratedTime,
		LogIndex: e.LogIndex, LogID: hex.EncodeToString(e.LogId.KeyId),
	})
	if err != nil {
		return nil, err
	}
	e.InclusionPromise = &protorekor.InclusionPromise{SignedEntryTimestamp: signed}
	return e, nil
}

// cosignAnnotations returns the verification material as annotations in the format of Cosign up to
// version 2.
func cosignAnnotations(m *protobundle.VerificationMaterial) (map[string]string, error) {
	if len(m.TlogEntries) != 1 {
		return nil, fmt.Errorf("expected 1 entry of the transparency log, got %d", len(m.TlogEntries))
	}
	certificate := cryptoutils.PEMEncode(cryptoutils.CertificatePEMType, m.GetCertificate().RawBytes)
	entry, err := json.Marshal(rekorBundle(m.TlogEntries[0]))
	if err != nil {
		return nil, err
	}
	stamp, err := json.Marshal(
		map[string][]byte{"SignedRFC3161Timestamp": m.TimestampVerificationData.Rfc3161Timestamps[0].SignedTimestamp})
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"dev.sigstore.cosign/certificate": string(certificate), "dev.sigstore.cosign/bundle": string(entry),
		"dev.sigstore.cosign/rfc3161timestamp": string(stamp),
	}, nil
}

func rekorBundle(e *protorekor.TransparencyLogEntry) map[string]any {
	return map[string]any{
		"SignedEntryTimestamp": e.InclusionPromise.SignedEntryTimestamp,
		"Payload": map[string]any{
			"body": e.CanonicalizedBody, "integratedTime": e.IntegratedTime, "logIndex": e.LogIndex,
			"logID": hex.EncodeToString(e.LogId.KeyId),
		},
	}
}
