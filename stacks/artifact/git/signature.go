package git

import (
	"bytes"
	"fmt"
	"strings"
)

// signed is an object with its signature taken out: what was signed, byte for
// byte. It is not decoded and written anew, which would drop what a decoder
// does not know.
type signed struct {
	payload, signature []byte
}

// How signatures begin.
const (
	pgpSignature  = "-----BEGIN PGP SIGNATURE-----"
	pgpMessage    = "-----BEGIN PGP MESSAGE-----"
	sshSignature  = "-----BEGIN SSH SIGNATURE-----"
	x509Signature = "-----BEGIN SIGNED MESSAGE-----"
)

// maxSignature is far more than a signature of the largest key takes.
const maxSignature = 64 << 10

// splitCommit takes the signature out of a commit: the header gpgsig, whose
// further lines begin with a space. As git does, it leaves out the header
// gpgsig-sha256 too.
func splitCommit(raw []byte) (signed, error) {
	var payload, signature bytes.Buffer
	var into *bytes.Buffer // where the header goes; nil: nowhere
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
		return signed{}, fail(SignatureInvalid, "it has %d signatures, expected one", found)
	}
	s := signed{payload: payload.Bytes(), signature: signature.Bytes()}
	return s, s.check()
}

// splitTag takes the signature off the end of a tag: from the last line on that
// begins one, as git does.
func splitTag(raw []byte) (signed, error) {
	s := signed{payload: raw}
	at := 0
	for rest := raw; len(rest) > 0; {
		var line []byte
		line, rest = cutLine(rest)
		if beginsSignature(line) {
			s.payload, s.signature = raw[:at], raw[at:]
		}
		at += len(line)
	}
	return s, s.check()
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

func (s signed) check() error {
	switch {
	case len(s.signature) == 0:
		return fail(SignatureMissing, "it has no signature")
	case len(s.signature) > maxSignature:
		return fail(SignatureInvalid, "its signature has more than %d bytes", maxSignature)
	}
	return nil
}

// tagHead is what a tag says of itself.
type tagHead struct {
	object, kind, name string
}

// readTagHead reads the header of a tag, which has these three first.
func readTagHead(raw []byte) (tagHead, error) {
	var t tagHead
	rest := raw
	for _, field := range []struct {
		name string
		into *string
	}{{"object", &t.object}, {"type", &t.kind}, {"tag", &t.name}} {
		var line []byte
		line, rest = cutLine(rest)
		value, ok := strings.CutPrefix(string(line), field.name+" ")
		if !ok {
			return t, fmt.Errorf("the tag has no header %q where one has to be", field.name)
		}
		*field.into = strings.TrimSuffix(value, "\n")
	}
	return t, nil
}
