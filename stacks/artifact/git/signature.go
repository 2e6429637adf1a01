package git

import (
	"bytes"
	"fmt"
	"strings"
)

// signedObject is a signed object, split into the signed payload and its signature. The payload
// is byte for byte what was signed: decoding and encoding an object would drop headers that
// the decoder does not know.
type signedObject struct {
	payload, signature []byte
}

// First lines of signatures.
const (
	pgpSignature  = "-----BEGIN PGP SIGNATURE-----"
	pgpMessage    = "-----BEGIN PGP MESSAGE-----"
	sshSignature  = "-----BEGIN SSH SIGNATURE-----"
	x509Signature = "-----BEGIN SIGNED MESSAGE-----"
)

// maxSignatureBytes is far more than the size of a signature by the largest key.
const maxSignatureBytes = 64 << 10

// splitCommit removes the signature from a commit: the header gpgsig, whose continuation lines
// begin with a space. Like git, it also removes the header gpgsig-sha256.
func splitCommit(raw []byte) (signedObject, error) {
	var payload, signature bytes.Buffer
	var into *bytes.Buffer // target of the current header; nil drops it
	found := 0
	for rest := raw; len(rest) > 0; {
		var line []byte
		line, rest = cutLine(rest)
		if line[0] == '\n' { // the end of the headers
			payload.Write(line)
			payload.Write(rest)
			break
		}
		if line[0] != ' ' {
			name, _, _ := bytes.Cut(line, []byte(" "))
			switch string(name) {
			case "gpgsig":
				found++
				into = &signature
				line = line[len("gpgsig"):]
			case "gpgsig-sha256":
				into = nil
			default:
				into = &payload
			}
		}
		if into == &signature && len(line) > 0 {
			line = line[1:] // the space
		}
		if into != nil {
			into.Write(line)
		}
	}
	if found > 1 {
		return signedObject{}, newError(SignatureInvalid, "the commit has %d signatures, expected one", found)
	}
	s := signedObject{payload: payload.Bytes(), signature: signature.Bytes()}
	return s, s.validate()
}

// splitTag removes the signature from the end of a tag. Like git, it uses the last line that
// begins a signature.
func splitTag(raw []byte) (signedObject, error) {
	s := signedObject{payload: raw}
	at := 0
	for line := range bytes.Lines(raw) {
		if beginsSignature(line) {
			s.payload, s.signature = raw[:at], raw[at:]
		}
		at += len(line)
	}
	return s, s.validate()
}

func cutLine(b []byte) (line, rest []byte) {
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		return b[:i+1], b[i+1:]
	}
	return b, nil
}

func beginsSignature(line []byte) bool {
	for _, begin := range []string{pgpSignature, pgpMessage, sshSignature, x509Signature} {
		if bytes.HasPrefix(line, []byte(begin)) {
			return true
		}
	}
	return false
}

func (s signedObject) validate() error {
	switch {
	case len(s.signature) == 0:
		return newError(SignatureMissing, "the signature is missing")
	case len(s.signature) > maxSignatureBytes:
		return newError(SignatureInvalid, "the signature has more than %d bytes", maxSignatureBytes)
	}
	return nil
}

// tagHeader holds the headers of a tag object.
type tagHeader struct {
	object, kind, name string
}

// readTagHeader parses the first three headers of a tag object.
func readTagHeader(raw []byte) (tagHeader, error) {
	var t tagHeader
	rest := raw
	for _, field := range []struct {
		name string
		into *string
	}{{"object", &t.object}, {"type", &t.kind}, {"tag", &t.name}} {
		var line []byte
		line, rest = cutLine(rest)
		value, ok := strings.CutPrefix(string(line), field.name+" ")
		if !ok {
			return t, fmt.Errorf("the header %q is missing or in the wrong place", field.name)
		}
		*field.into = strings.TrimSuffix(value, "\n")
	}
	return t, nil
}
