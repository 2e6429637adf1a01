package git

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"golang.org/x/crypto/ssh"
)

// Keys are public keys whose signatures are trusted.
type Keys struct {
	pgp openpgp.EntityList
	ssh []sshKey
}

type sshKey struct {
	key ssh.PublicKey
	// The key is valid from validAfter until validBefore; a zero time is no bound.
	validAfter, validBefore time.Time
}

const (
	pgpPublicKey = "-----BEGIN PGP PUBLIC KEY BLOCK-----"
	// maxKeyBytes bounds one value with keys. It is the maximum size of a Secret.
	maxKeyBytes = 1 << 20
)

// ParseKeys parses public keys by name, as in the data of a Secret. A value contains either
// armored OpenPGP keys or lines with SSH keys, in the format of authorized_keys or of the
// allowed_signers file of ssh-keygen. Any other content is an error, so that no key is ignored
// silently.
func ParseKeys(values map[string][]byte) (*Keys, error) {
	keys := &Keys{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := values[name]
		if len(value) > maxKeyBytes {
			return nil, newError(CredentialsInvalid, "%.80q has more than %d bytes", name, maxKeyBytes)
		}
		err := recoverPanic(func() error {
			if bytes.Contains(value, []byte(pgpPublicKey)) {
				return keys.addPGP(name, value)
			}
			return keys.addSSH(name, value)
		})
		if err != nil {
			return nil, err
		}
	}
	if len(keys.pgp) == 0 && len(keys.ssh) == 0 {
		return nil, newError(CredentialsInvalid,
			"there is no public key: add armored OpenPGP keys (gpg --export --armor) or SSH public keys")
	}
	return keys, nil
}

// addPGP adds all key blocks of a value: exports often contain several blocks.
func (k *Keys) addPGP(name string, value []byte) error {
	for _, block := range strings.Split(string(value), pgpPublicKey)[1:] {
		found, err := openpgp.ReadArmoredKeyRing(strings.NewReader(pgpPublicKey + block))
		if err != nil {
			return wrapError(CredentialsInvalid, err, "%.80q can't be read as armored OpenPGP public keys", name)
		}
		k.pgp = append(k.pgp, found...)
	}
	return nil
}

func (k *Keys) addSSH(name string, value []byte) error {
	for i, line := range strings.Split(string(value), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := parseSSHKey(line)
		if err != nil {
			// The message omits the line: it may be a private key.
			return wrapError(CredentialsInvalid, err, "line %d of %.80q is not a public key", i+1, name)
		}
		k.ssh = append(k.ssh, key)
	}
	return nil
}

// parseSSHKey parses a line of authorized_keys, or of allowed_signers, which has principals
// and options before the key. The principals are ignored: every listed key is trusted.
func parseSSHKey(line string) (sshKey, error) {
	if key, _, options, _, err := ssh.ParseAuthorizedKey([]byte(line)); err == nil && len(options) == 0 {
		return sshKey{key: key}, nil
	}
	key, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(skipFirstWord(line)))
	if err != nil || len(rest) > 0 {
		return sshKey{},
			errors.New(`expected "ssh-ed25519 AAAA…", optionally after a principal, or an OpenPGP public key block`)
	}
	k := sshKey{key: key}
	for _, option := range options {
		name, value, _ := strings.Cut(option, "=")
		value = strings.Trim(value, `"`)
		switch strings.ToLower(name) {
		case "namespaces":
			if !slices.Contains(strings.Split(value, ","), sshNamespace) {
				return k, errors.New(`the option namespaces does not contain "git"`)
			}
		case "valid-after":
			k.validAfter, err = signerTime(value)
		case "valid-before":
			k.validBefore, err = signerTime(value)
		default: // cert-authority and unknown options
			return k, errors.New("the key has an unsupported option; " +
				"supported are namespaces, valid-after and valid-before")
		}
		if err != nil {
			return k, err
		}
	}
	return k, nil
}

// skipFirstWord returns a line without its first word, which may be quoted.
func skipFirstWord(line string) string {
	quoted := false
	for i, c := range line {
		switch {
		case c == '"':
			quoted = !quoted
		case (c == ' ' || c == '\t') && !quoted:
			return strings.TrimSpace(line[i:])
		}
	}
	return ""
}

// signerTime parses a time of allowed_signers. ssh-keygen interprets a time without a Z in the
// time zone of the machine; signerTime always uses UTC.
func signerTime(s string) (time.Time, error) {
	s = strings.TrimSuffix(s, "Z")
	for _, layout := range []string{"20060102", "200601021504", "20060102150405"} {
		if len(s) == len(layout) {
			if t, err := time.Parse(layout, s); err == nil {
				return t, nil
			}
		}
	}
	return time.Time{}, errors.New("a time does not have the format YYYYMMDD or YYYYMMDDHHMM[SS], with or without a Z")
}
