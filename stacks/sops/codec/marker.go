package codec

import (
	"crypto/rand"
	"regexp"
	"strings"

	library "github.com/getsops/sops/v3"
	"github.com/getsops/sops/v3/aes"
)

// cipherOf a tree is the library's, and the tree one whose rule costs little. The library compiles an
// expression anew for each name on the way to each value, which took most of a minute for a large file. So
// each name is matched here once, those that fit are marked, and the rule is a suffix: that mark.
// The library walks on, and what it writes, and proves by the MAC, is what it would be. Take the
// marks off afterwards.
func cipherOf(tree *library.Tree) (marked library.Tree, cipher library.Cipher, unmark func()) {
	marked, cipher = *tree, aes.NewCipher()
	rule := tree.Metadata.UnencryptedRegex
	if rule == "" {
		rule = tree.Metadata.EncryptedRegex
	}
	if rule == "" || !alone(tree.Metadata) {
		return marked, cipher, func() {}
	}
	m := marker{mark: rand.Text(), marked: map[string]string{}} // nobody could have named something so
	m.rule, _ = regexp.Compile(rule)                            // to the library one that is none fits nothing
	m.all(tree.Branches, m.add)
	if tree.Metadata.UnencryptedRegex != "" {
		marked.Metadata.UnencryptedRegex, marked.Metadata.UnencryptedSuffix = "", m.mark
	} else {
		marked.Metadata.EncryptedRegex, marked.Metadata.EncryptedSuffix = "", m.mark
	}
	return marked, unmarking{cipher, m.mark}, func() { m.all(tree.Branches, m.remove) }
}

// alone tells that a file has no other rule besides an expression: the library refuses two.
func alone(m library.Metadata) bool {
	return m.UnencryptedSuffix+m.EncryptedSuffix+m.UnencryptedCommentRegex+m.EncryptedCommentRegex == "" && (m.UnencryptedRegex == "" || m.EncryptedRegex == "")
}

// marker marks the names in a tree that fit a rule.
type marker struct {
	rule *regexp.Regexp
	mark string
	// marked are the names that were met, as they were then called.
	marked map[string]string
}

func (m marker) all(branches library.TreeBranches, do func(name string) string) {
	for _, b := range branches {
		m.walk(b, do)
	}
}

// walk has every name renamed that decides: what is below a marked one goes with that.
func (m marker) walk(value any, do func(name string) string) {
	switch v := value.(type) {
	case library.TreeBranch:
		for i, item := range v {
			name, ok := item.Key.(string)
			if !ok { // a comment
				continue
			}
			renamed := do(name)
			v[i].Key = renamed
			if renamed == name {
				m.walk(item.Value, do)
			}
		}
	case []any:
		for _, one := range v {
			m.walk(one, do)
		}
	}
}

func (m marker) add(name string) string {
	renamed, met := m.marked[name]
	if !met {
		renamed = name
		if m.rule != nil && m.rule.MatchString(name) {
			renamed += m.mark
		}
		m.marked[name] = renamed
	}
	return renamed
}

func (m marker) remove(name string) string { return strings.TrimSuffix(name, m.mark) }

// unmarking is a cipher that does not see marks: a value is bound to the names that lead to it.
type unmarking struct {
	library.Cipher

	mark string
}

// Encrypt implements library.Cipher.
func (u unmarking) Encrypt(plain any, key []byte, path string) (string, error) {
	return u.Cipher.Encrypt(plain, key, strings.ReplaceAll(path, u.mark, ""))
}

// Decrypt implements library.Cipher.
func (u unmarking) Decrypt(sealed string, key []byte, path string) (any, error) {
	return u.Cipher.Decrypt(sealed, key, strings.ReplaceAll(path, u.mark, ""))
}
