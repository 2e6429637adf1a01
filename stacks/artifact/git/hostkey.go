package git

import (
	"bytes"
	"cmp"
	"errors"
	"net"
	"os"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"

	"github.com/ksctl/gitops/stacks/artifact"
)

// maxKnownHosts bounds the size of known_hosts in bytes. A Secret can't hold more.
const maxKnownHosts = 1 << 20

// parseKnownHosts parses the content of a known_hosts file. It writes a temporary file in the
// directory temp, because the library only reads files.
func parseKnownHosts(content []byte, temp string) (db *knownhosts.HostKeyDB, err error) {
	if !hasLine(content) {
		return nil, newError(CredentialsInvalid,
			"known_hosts is missing or empty, so that the server can't be authenticated: add its keys, as "+
				"ssh-keyscan HOST prints them")
	}
	if len(content) > maxKnownHosts {
		return nil, newError(CredentialsInvalid, "known_hosts has more than %d bytes", maxKnownHosts)
	}
	file, err := os.CreateTemp(temp, "known-hosts-")
	if err != nil {
		return nil, wrapError(artifact.Storage, err, "storing known_hosts")
	}
	defer func() { _ = os.Remove(file.Name()) }()
	_, err = file.Write(content)
	if err = cmp.Or(err, file.Close()); err != nil {
		return nil, wrapError(artifact.Storage, err, "storing known_hosts")
	}
	err = recoverPanic(func() (err error) {
		db, err = knownhosts.NewDB(file.Name())
		return err
	})
	if err != nil {
		return nil, newError(CredentialsInvalid,
			"known_hosts can't be read: expected lines such as \"git.example.com ssh-ed25519 AAAA…\", as ssh-keyscan "+
				"prints them")
	}
	return db, nil
}

func hasLine(content []byte) bool {
	for line := range bytes.Lines(content) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return true
		}
	}
	return false
}

// hostKeyCheck records the result of a host key check, because the errors of the SSH library
// do not always contain it.
type hostKeyCheck struct {
	knownHosts  *knownhosts.HostKeyDB
	err         error
	fingerprint string
}

func (h *hostKeyCheck) callback(host string, remote net.Addr, key ssh.PublicKey) error {
	h.fingerprint = key.Type() + " " + ssh.FingerprintSHA256(key)
	h.err = h.knownHosts.HostKeyCallback()(host, remote, key)
	return h.err
}

// hostKeyError returns the error of a failed host key check.
func (h *hostKeyCheck) hostKeyError(address, masked string) *Error {
	if known, ok := errors.AsType[*xknownhosts.KeyError](h.err); ok {
		if len(known.Want) == 0 {
			return newError(HostKeyUnknown,
				"known_hosts has no key of %s; the server presents %s: if that is its key, add it", address,
				h.fingerprint)
		}
		return newError(HostKeyMismatch,
			"the server of %s presents %s, which is not the key in known_hosts: the connection may be intercepted, "+
				"or the server has a new key",
			masked, h.fingerprint)
	}
	if _, ok := errors.AsType[*xknownhosts.RevokedError](h.err); ok {
		return newError(HostKeyMismatch, "the server of %s presents %s, which is revoked in known_hosts", masked,
			h.fingerprint)
	}
	return wrapError(HostKeyMismatch, h.err, "the host key of %s (%s) is rejected", masked, h.fingerprint)
}
