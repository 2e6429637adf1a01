package codec

import (
	"strings"

	"filippo.io/age"

	"github.com/ksctl/gitops/stacks/sops"
)

// readAge reads identities, one a line. Plugins, which are programs to be run,
// and SSH keys are refused. The library's errors may quote what they read.
func readAge(value []byte) ([]age.Identity, error) {
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
			return nil, invalid("has on line %d an identity of a plugin of age, which is a program and is not run here", i+1)
		default:
			return nil, invalid("has on line %d no age identity (AGE-SECRET-KEY-1…)", i+1)
		}
		if err != nil {
			return nil, invalid("has on line %d an age identity that is damaged: copy it again", i+1)
		}
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return nil, invalid("holds no age identity (AGE-SECRET-KEY-1…)")
	}
	return ids, nil
}

// checkRecipient says what is wrong with a public key of age.
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
		return fail(sops.RecipientInvalid, "a recipient is a private age identity: give its public key (age1…), and make a new one, for this one may have been seen")
	}
	return fail(sops.RecipientInvalid, "the recipient %s is no public key of age (age1…)", shown(s))
}
