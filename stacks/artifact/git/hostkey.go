package git

import (
	"bufio"
	"bytes"
	"errors"
	"net"
	"os"
	"strings"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"

	"github.com/ksctl/gitops/stacks/artifact"
)

// knownHosts are the keys that servers may have.
type knownHosts struct{ db *knownhosts.HostKeyDB }

// maxKnownHosts is far more than a Secret may hold.
const maxKnownHosts = 1 << 20

// parseKnownHosts reads what would stand in a known_hosts file. The library
// takes files only.
func parseKnownHosts(content []byte, temp string) (knownHosts, error) {
	if !hasLine(content) {
		return knownHosts{}, fail(CredentialsInvalid, "known_hosts is missing or empty: without the keys of the server nobody can tell who answers; ssh-keyscan HOST writes them")
	}
	if len(content) > maxKnownHosts {
		return knownHosts{}, fail(CredentialsInvalid, "known_hosts has more than %d bytes", maxKnownHosts)
	}
	file, err := os.CreateTemp(temp, "known-hosts-")
	if err != nil {
		return knownHosts{}, failBy(Reason(artifact.Storage), err, "keeping known_hosts")
	}
	defer func() { _ = os.Remove(file.Name()) }()
	_, err = file.Write(content)
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return knownHosts{}, failBy(Reason(artifact.Storage), err, "keeping known_hosts")
	}
	var db *knownhosts.HostKeyDB
	err = guard(func() (err error) {
		db, err = knownhosts.NewDB(file.Name())
		return err
	})
	if err != nil {
		return knownHosts{}, fail(CredentialsInvalid, "known_hosts can't be read: expected lines such as \"git.example.com ssh-ed25519 AAAA…\", as ssh-keyscan writes them")
	}
	return knownHosts{db: db}, nil
}

func hasLine(content []byte) bool {
	lines := bufio.NewScanner(bytes.NewReader(content))
	lines.Buffer(nil, maxKnownHosts)
	for lines.Scan() {
		if line := strings.TrimSpace(lines.Text()); line != "" && !strings.HasPrefix(line, "#") {
			return true
		}
	}
	return false
}

// algorithms are those of the keys that are known of a server: it may have
// others, that are not.
func (k knownHosts) algorithms(address string) []string { return k.db.HostKeyAlgorithms(address) }

// hostCheck remembers how the check of a server's key ended: errors of the SSH
// library do not carry it along in all cases.
type hostCheck struct {
	hosts knownHosts
	err   error
	print string
}

func (h *hostCheck) callback(host string, remote net.Addr, key ssh.PublicKey) error {
	h.print = key.Type() + " " + ssh.FingerprintSHA256(key)
	h.err = h.hosts.db.HostKeyCallback()(host, remote, key)
	return h.err
}

// refusal says what is wrong with the server's key.
func (h *hostCheck) refusal(address, masked string) *Error {
	if known, ok := errors.AsType[*xknownhosts.KeyError](h.err); ok {
		if len(known.Want) == 0 {
			return fail(HostKeyUnknown, "known_hosts has no key of %s; the server shows %s: if that is its key, add it", address, h.print)
		}
		return fail(HostKeyMismatch, "the server of %s shows %s, which is not the key in known_hosts: somebody may stand in between, or the server has a new key",
			masked, h.print)
	}
	if _, ok := errors.AsType[*xknownhosts.RevokedError](h.err); ok {
		return fail(HostKeyMismatch, "the server of %s shows %s, which known_hosts revokes", masked, h.print)
	}
	return failBy(HostKeyMismatch, h.err, "the key of the server of %s (%s) is not taken", masked, h.print)
}
