package git

import (
	"bufio"
	"bytes"
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
	// From and until when the key may sign; zero: ever.
	after, before time.Time
}

const (
	pgpPublicKey = "-----BEGIN PGP PUBLIC KEY BLOCK-----"
	// maxKeys is as much as a Secret can hold.
	maxKeys = 1 << 20
)

// ParseKeys reads public keys by name, as a Secret holds them. A value is
// either armored OpenPGP keys, or lines with SSH keys: as in an authorized_keys
// file, or as in the allowed_signers file of ssh-keygen. Whatever else there is
// is an error, so that no key is passed over unseen.
func ParseKeys(values map[string][]byte) (*Keys, error) {
	keys := &Keys{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := values[name]
		if len(value) > maxKeys {
			return nil, fail(CredentialsInvalid, "%.80q has more than %d bytes", name, maxKeys)
		}
		err := guard(func() error {
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
		return nil, fail(CredentialsInvalid, "there is no public key: add armored OpenPGP keys (gpg --export --armor) or SSH public keys")
	}
	return keys, nil
}

// addPGP adds all blocks of a value: an export is often more than one, one
// after the other.
func (k *Keys) addPGP(name string, value []byte) error {
	for rest := value; ; {
		at := bytes.Index(rest, []byte(pgpPublicKey))
		if at < 0 {
			return nil
		}
		block := rest[at:]
		end := len(block)
		if next := bytes.Index(block[1:], []byte(pgpPublicKey)); next >= 0 {
			end = next + 1
		}
		rest = block[end:]
		found, err := openpgp.ReadArmoredKeyRing(bytes.NewReader(block[:end]))
		if err != nil {
			return failBy(CredentialsInvalid, err, "%.80q can't be read as armored OpenPGP public keys", name)
		}
		k.pgp = append(k.pgp, found...)
	}
}

func (k *Keys) addSSH(name string, value []byte) error {
	lines := bufio.NewScanner(bytes.NewReader(value))
	lines.Buffer(nil, maxKeys)
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := parseSSHKey(line)
		if err != nil {
			// Not what stands there: it may be a private key.
			return failBy(CredentialsInvalid, err, "line %d of %.80q is no public key", number, name)
		}
		k.ssh = append(k.ssh, key)
	}
	return nil
}

// parseSSHKey reads a line of authorized_keys, or of allowed_signers, which
// has the names of who has the key, and options, before it. The names do not
// matter here: each key that is listed is trusted.
func parseSSHKey(line string) (sshKey, error) {
	if key, _, options, _, err := ssh.ParseAuthorizedKey([]byte(line)); err == nil && len(options) == 0 {
		return sshKey{key: key}, nil
	}
	key, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(afterWord(line)))
	if err != nil || len(rest) > 0 {
		return sshKey{}, errNoKey
	}
	k := sshKey{key: key}
	for _, option := range options {
		name, value, _ := strings.Cut(option, "=")
		value = strings.Trim(value, `"`)
		switch strings.ToLower(name) {
		case "namespaces":
			if !slices.Contains(strings.Split(value, ","), sshNamespace) {
				return k, errOtherNamespace
			}
		case "valid-after":
			k.after, err = signerTime(value)
		case "valid-before":
			k.before, err = signerTime(value)
		default: // cert-authority, and what is not invented yet
			return k, errOption
		}
		if err != nil {
			return k, err
		}
	}
	return k, nil
}

type keyError string

// Error implements error.
func (e keyError) Error() string { return string(e) }

const (
	errNoKey          = keyError(`expected "ssh-ed25519 AAAA…", or that after the name of who has the key, or an OpenPGP public key block`)
	errOption         = keyError("it has an option that is not supported: there are namespaces, valid-after and valid-before")
	errOtherNamespace = keyError(`its option namespaces does not name "git"`)
	errTime           = keyError("a time is not of the form YYYYMMDD or YYYYMMDDHHMM[SS], with or without a Z")
)

// afterWord is a line without its first word, which may be in quotes.
func afterWord(line string) string {
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

// signerTime reads a time of allowed_signers. Without a Z it would be in the
// time zone of the machine: here that is UTC.
func signerTime(s string) (time.Time, error) {
	s = strings.TrimSuffix(s, "Z")
	for _, layout := range []string{"20060102", "200601021504", "20060102150405"} {
		if len(s) == len(layout) {
			if t, err := time.Parse(layout, s); err == nil {
				return t, nil
			}
		}
	}
	return time.Time{}, errTime
}
