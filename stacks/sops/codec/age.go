package codec

import (
	"strings"

	"filippo.io/age"

	"github.com/ksctl/gitops/stacks/sops"
)

// readAgeIdentities reads age identities, one per line. It refuses identities of plugins, which are
// programs, and SSH keys. Errors of the library are dropped, because they may quote the input.
func readAgeIdentities(value []byte) ([]age.Identity, error) {
	var ids []age.Identity
	for i, line := range strings.Split(string(value), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		var id age.Identity
		var err error
		switch {
		case strings.HasPrefix(line, "AGE-SECRET-KEY-1"):
			id, err = age.ParseX25519Identity(line)
		case strings.HasPrefix(line, "AGE-SECRET-KEY-PQ-1"):
			id, err = age.ParseHybridIdentity(line)
		case strings.HasPrefix(line, "AGE-PLUGIN-"):
			return nil, invalid("has an identity of an age plugin on line %d, which is not supported: plugins are "+
				"programs", i+1)
		default:
			return nil, invalid("has no age identity (AGE-SECRET-KEY-1…) on line %d", i+1)
		}
		if err != nil {
			return nil, invalid("has a damaged age identity on line %d: copy the identity again", i+1)
		}
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return nil, invalid("has no age identity (AGE-SECRET-KEY-1…)")
	}
	return ids, nil
}

// checkRecipient returns an error if a recipient is not an age public key.
func checkRecipient(s string) error {
	var err error
	if strings.HasPrefix(s, "age1pq1") {
		_, err = age.ParseHybridRecipient(s)
	} else {
		_, err = age.ParseX25519Recipient(s)
	}
	switch {
	case err == nil:
		return nil
	case strings.Contains(strings.ToUpper(s), "AGE-SECRET-KEY-"):
		return newError(sops.RecipientInvalid,
			"a recipient is a private age identity: set the public key (age1…), and replace the identity, which may "+
				"have been exposed")
	}
	return newError(sops.RecipientInvalid, "the recipient %s is not an age public key (age1…)", sanitize(s))
}
