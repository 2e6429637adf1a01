package scriptsapi

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

const (
	// minTokenBytes is the minimum length of a token.
	minTokenBytes = 16
	// maxTokensBytes is the maximum size of a file of tokens: that of a Secret.
	maxTokensBytes = 1 << 20
	// tokensMaxAge is how long tokens are used without reading the files again.
	tokensMaxAge = time.Second
)

// tokens are the tokens of accounts in a folder: one file per account, one token per line. The
// files are read again at most once a second. Only hashes stay in memory.
type tokens struct {
	dir   string
	clock clock.PassiveClock
	log   logr.Logger

	mu      sync.Mutex
	read    time.Time
	entries []tokenEntry
	// invalid are the errors of accounts whose tokens are not valid.
	invalid map[string]error
}

// tokenEntry is a token of an account.
type tokenEntry struct {
	account string
	hash    [sha256.Size]byte
}

// newTokens reads the tokens in a folder. Files with mistakes are logged.
func newTokens(dir string, c clock.PassiveClock, log logr.Logger) (*tokens, error) {
	t := &tokens{dir: dir, clock: c, log: log, read: c.Now()}
	return t, t.update()
}

// accounts returns the accounts that a token is for, sorted. It compares in constant time, so that
// its duration reveals nothing about the tokens.
func (t *tokens) accounts(token string) []string {
	sum := sha256.Sum256([]byte(token))
	var out []string
	for _, e := range t.current() {
		if subtle.ConstantTimeCompare(sum[:], e.hash[:]) == 1 && !slices.Contains(out, e.account) {
			out = append(out, e.account)
		}
	}
	return out
}

// current returns the entries, after reading the files if it is time to. With a folder that can't
// be read, the former tokens stay valid.
func (t *tokens) current() []tokenEntry {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	if now.Sub(t.read) < tokensMaxAge {
		return t.entries
	}
	t.read = now
	if err := t.update(); err != nil {
		t.log.Error(err, "reading the tokens failed: the former ones stay valid")
	}
	return t.entries
}

// update reads the files. An account with an invalid file has no tokens, and the others are valid.
func (t *tokens) update() error {
	files, err := os.ReadDir(t.dir)
	if err != nil {
		return fmt.Errorf("reading the folder of the tokens: %w", err)
	}
	var entries []tokenEntry
	invalid := map[string]error{}
	for _, f := range files { // sorted by name
		account := f.Name()
		if strings.HasPrefix(account, ".") { // a folder of the kubelet for the Secret
			continue
		}
		hashes, err := readTokens(t.dir, account)
		if err != nil {
			invalid[account] = err
			if former := t.invalid[account]; former == nil || former.Error() != err.Error() { // not once a second
				t.log.Error(err, "the account has no valid token until its file is corrected", "account", account)
			}
			continue
		}
		for _, hash := range hashes {
			entries = append(entries, tokenEntry{account, hash})
		}
	}
	t.entries, t.invalid = entries, invalid
	return nil
}

// readTokens returns the hashes of the tokens of an account.
func readTokens(dir, account string) ([][sha256.Size]byte, error) {
	if !accountPattern.MatchString(account) {
		return nil, fmt.Errorf("%s is no name of an account", filepath.Join(dir, account))
	}
	content, err := readFile(filepath.Join(dir, account))
	if err != nil {
		return nil, fmt.Errorf("reading the tokens of account %s: %w", account, err)
	}
	var out [][sha256.Size]byte
	for token := range bytes.Lines(content) {
		if token = bytes.TrimSpace(token); len(token) == 0 {
			continue
		}
		if len(token) < minTokenBytes {
			return nil, fmt.Errorf("account %s: a token is shorter than %d bytes", account, minTokenBytes)
		}
		out = append(out, sha256.Sum256(token))
	}
	return out, nil
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(f, maxTokensBytes+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if len(content) > maxTokensBytes {
		return nil, fmt.Errorf("the file is larger than %d bytes", maxTokensBytes)
	}
	return content, nil
}
