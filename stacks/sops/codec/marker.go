package codec

import (
	"cmp"
	"crypto/rand"
	"regexp"
	"strings"

	library "github.com/getsops/sops/v3"
	"github.com/getsops/sops/v3/aes"
)

// markTree makes the rule of a tree cheap to evaluate, and returns the cipher for the marked tree.
// The library compiles an expression again for each name on the path of each value, which took most
// of a minute for a large file. So markTree matches each name once, appends a mark to the matching
// names, and replaces the expression by a suffix rule with that mark. Result and MAC are the same
// as without marks. The caller calls unmark afterwards, which removes the marks.
func markTree(tree *library.Tree) (marked library.Tree, cipher library.Cipher, unmark func()) {
	marked, cipher = *tree, aes.NewCipher()
	rule := cmp.Or(tree.Metadata.UnencryptedRegex, tree.Metadata.EncryptedRegex)
	if rule == "" || !hasSingleRule(tree.Metadata) {
		return marked, cipher, func() {}
	}
	m := marker{mark: rand.Text(), names: map[string]string{}} // random, so that no name contains it
	// as in the library, an invalid expression matches nothing
	m.rule, _ = regexp.Compile(rule)
	m.walkAll(tree.Branches, m.addMark)
	if tree.Metadata.UnencryptedRegex != "" {
		marked.Metadata.UnencryptedRegex, marked.Metadata.UnencryptedSuffix = "", m.mark
	} else {
		marked.Metadata.EncryptedRegex, marked.Metadata.EncryptedSuffix = "", m.mark
	}
	return marked, unmarkingCipher{cipher, m.mark}, func() { m.walkAll(tree.Branches, m.removeMark) }
}

// hasSingleRule is true if the file has no rule other than one expression: the library refuses
// files with two rules.
func hasSingleRule(m library.Metadata) bool {
	return m.UnencryptedSuffix+m.EncryptedSuffix+m.UnencryptedCommentRegex+m.EncryptedCommentRegex == "" &&
		(m.UnencryptedRegex == "" || m.EncryptedRegex == "")
}

// marker marks the names in a tree that match a rule.
type marker struct {
	rule *regexp.Regexp
	mark string
	// names maps each name seen to its name with or without the mark.
	names map[string]string
}

func (m marker) walkAll(branches library.TreeBranches, rename func(name string) string) {
	for _, b := range branches {
		m.walk(b, rename)
	}
}

// walk renames the names in a tree. It skips everything below a marked name, because the rule
// applies to that as a whole.
func (m marker) walk(value any, rename func(name string) string) {
	switch v := value.(type) {
	case library.TreeBranch:
		for i, item := range v {
			name, ok := item.Key.(string)
			if !ok { // a comment
				continue
			}
			renamed := rename(name)
			v[i].Key = renamed
			if renamed == name {
				m.walk(item.Value, rename)
			}
		}
	case []any:
		for _, one := range v {
			m.walk(one, rename)
		}
	}
}

func (m marker) addMark(name string) string {
	renamed, seen := m.names[name]
	if !seen {
		renamed = name
		if m.rule != nil && m.rule.MatchString(name) {
			renamed += m.mark
		}
		m.names[name] = renamed
	}
	return renamed
}

func (m marker) removeMark(name string) string { return strings.TrimSuffix(name, m.mark) }

// unmarkingCipher is a cipher that removes marks from paths, because each encrypted value is bound
// to its path.
type unmarkingCipher struct {
	library.Cipher

	mark string
}

// Encrypt implements library.Cipher.
func (u unmarkingCipher) Encrypt(plain any, key []byte, path string) (string, error) {
	return u.Cipher.Encrypt(plain, key, strings.ReplaceAll(path, u.mark, ""))
}

// Decrypt implements library.Cipher.
func (u unmarkingCipher) Decrypt(ciphertext string, key []byte, path string) (any, error) {
	return u.Cipher.Decrypt(ciphertext, key, strings.ReplaceAll(path, u.mark, ""))
}
