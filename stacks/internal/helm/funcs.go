package helm

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"
)

// beginFunc is the function that instrument calls at the beginning of every template, to set the
// current template. It renders nothing.
const beginFunc = "ksctlBegin"

// Limits of single calls, whose output could otherwise be much larger than their input.
const (
	maxRandom = 1 << 16
	maxLoop   = 1_000_000
	maxRepeat = 16 << 20
)

// refusedFuncs are the functions that templates must not use, with what their output depends on.
var refusedFuncs = map[string]string{
	"now": "the clock", "ago": "the clock",
	"genPrivateKey": "a new key", "genCA": "a new key", "genCAWithKey": "a new certificate",
	"genSelfSignedCert": "a new key", "genSelfSignedCertWithKey": "a new certificate",
	"genSignedCert": "a new key", "genSignedCertWithKey": "a new certificate",
	"bcrypt": "a random salt", "htpasswd": "a random salt", "encryptAES": "a random vector",
}

func refusalAdvice(name string) string {
	switch {
	case name == "bcrypt" || name == "htpasswd" || name == "encryptAES":
		return "compute the result beforehand and set it as a value from a Secret"
	case strings.HasPrefix(name, "gen"):
		return "use an existing Secret, or let cert-manager issue the certificate"
	}
	return "set a fixed value"
}

// templateFuncs has deterministic replacements for Helm's template functions: the same input
// renders the same output, each time and on each machine.
type templateFuncs struct {
	seed     []byte
	template string
	random   *rand.ChaCha8
	// used are the random functions that each template called. refused is the first call that is
	// not allowed.
	used    map[string][]string
	refused string
}

func (f *templateFuncs) begin(name string) string {
	mac := hmac.New(sha256.New, f.seed)
	mac.Write([]byte(name))
	f.template = name
	f.random = rand.NewChaCha8([32]byte(mac.Sum(nil)))
	return ""
}

func (f *templateFuncs) funcMap() template.FuncMap {
	m := template.FuncMap{
		beginFunc:      f.begin,
		"randAlphaNum": f.randString("randAlphaNum", "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"),
		"randAlpha":    f.randString("randAlpha", "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"),
		"randNumeric":  f.randString("randNumeric", "0123456789"),
		"randAscii":    f.randString("randAscii", printable()),
		"randBytes":    f.randBytes,
		"randInt":      f.randInt,
		"shuffle":      f.shuffle,
		"uuidv4":       f.uuid,
		"keys":         sortedKeys,
		"values":       sortedValues,
		"repeat":       repeat,
		"until":        func(n int) ([]int, error) { return untilStep(0, n, cmp.Compare(n, 0)) },
		"untilStep":    untilStep,
	}
	maps.Copy(m, f.dates())
	for name := range refusedFuncs {
		m[name] = func(...any) (any, error) { return nil, f.refuse(name) }
	}
	return m
}

func (f *templateFuncs) refuse(name string) error {
	if f.refused == "" {
		f.refused = name
	}
	return fmt.Errorf("the function %s is not allowed here", name)
}

func (f *templateFuncs) recordUse(name string) {
	if !slices.Contains(f.used[f.template], name) {
		f.used[f.template] = append(f.used[f.template], name)
	}
}

func printable() string {
	var b strings.Builder
	for c := byte(' '); c <= '~'; c++ {
		b.WriteByte(c)
	}
	return b.String()
}

func (f *templateFuncs) randIntn(n int) int { return rand.New(f.random).IntN(n) }

func (f *templateFuncs) randString(name, alphabet string) func(int) (string, error) {
	return func(count int) (string, error) {
		f.recordUse(name)
		if count < 0 || count > maxRandom {
			return "", fmt.Errorf("%s makes at most %d characters", name, maxRandom)
		}
		out := make([]byte, count)
		for i := range out {
			out[i] = alphabet[f.randIntn(len(alphabet))]
		}
		return string(out), nil
	}
}

func (f *templateFuncs) randomBytes(n int) []byte {
	out := make([]byte, n)
	_, _ = f.random.Read(out)
	return out
}

func (f *templateFuncs) randBytes(count int) (string, error) {
	f.recordUse("randBytes")
	if count < 0 || count > maxRandom {
		return "", fmt.Errorf("randBytes makes at most %d bytes", maxRandom)
	}
	return base64.StdEncoding.EncodeToString(f.randomBytes(count)), nil
}

func (f *templateFuncs) randInt(low, high int) (int, error) {
	f.recordUse("randInt")
	if high <= low {
		return 0, fmt.Errorf("randInt needs a range, but %d is not below %d", low, high)
	}
	return low + f.randIntn(high-low), nil
}

func (f *templateFuncs) shuffle(s string) string {
	f.recordUse("shuffle")
	runes := []rune(s)
	rand.New(f.random).Shuffle(len(runes), func(i, j int) { runes[i], runes[j] = runes[j], runes[i] })
	return string(runes)
}

func (f *templateFuncs) uuid() string {
	f.recordUse("uuidv4")
	b := f.randomBytes(16)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// dates returns Helm's date functions in UTC. They reject calls without a time, which would use the
// clock.
func (f *templateFuncs) dates() template.FuncMap {
	format := func(name string) func(layout string, at any, zone string) (string, error) {
		return func(layout string, at any, zone string) (string, error) {
			t, ok := toTime(at)
			if !ok {
				return "", f.refuse(name)
			}
			loc, err := time.LoadLocation(zone)
			if err != nil || zone == "Local" {
				loc = time.UTC
			}
			return t.In(loc).Format(layout), nil
		}
	}
	parse := func(layout, s string) (time.Time, error) { return time.ParseInLocation(layout, s, time.UTC) }
	return template.FuncMap{
		"date":         func(layout string, at any) (string, error) { return format("date")(layout, at, "UTC") },
		"dateInZone":   format("dateInZone"),
		"date_in_zone": format("date_in_zone"),
		"htmlDate":     func(at any) (string, error) { return format("htmlDate")(time.DateOnly, at, "UTC") },
		"htmlDateInZone": func(at any, zone string) (string, error) {
			return format("htmlDateInZone")(time.DateOnly, at, zone)
		},
		"toDate":        func(layout, s string) time.Time { t, _ := parse(layout, s); return t },
		"mustToDate":    parse,
		"durationRound": f.durationRound,
	}
}

func toTime(at any) (time.Time, bool) {
	switch at := at.(type) {
	case time.Time:
		return at, true
	case *time.Time:
		if at != nil {
			return *at, true
		}
	case int64:
		return time.Unix(at, 0), true
	case int:
		return time.Unix(int64(at), 0), true
	case int32:
		return time.Unix(int64(at), 0), true
	}
	return time.Time{}, false
}

// durationRound is Helm's durationRound, except that it rejects a time, because the duration since
// then depends on the clock.
func (f *templateFuncs) durationRound(v any) (string, error) {
	var d time.Duration
	switch v := v.(type) {
	case string:
		d, _ = time.ParseDuration(v)
	case int64:
		d = time.Duration(v)
	case time.Time:
		return "", f.refuse("durationRound")
	}
	d = d.Abs()
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{
		{365 * 24 * time.Hour, "y"}, {30 * 24 * time.Hour, "mo"}, {24 * time.Hour, "d"},
		{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"},
	} {
		if d > unit.length {
			return strconv.FormatInt(int64(d/unit.length), 10) + unit.name, nil
		}
	}
	return "0s", nil
}

// sortedKeys is Helm's keys, but sorted.
func sortedKeys(dicts ...map[string]any) []string {
	out := []string{}
	for _, d := range dicts {
		out = append(out, slices.Sorted(maps.Keys(d))...)
	}
	return out
}

// sortedValues is Helm's values, but sorted by key.
func sortedValues(dict map[string]any) []any {
	out := []any{}
	for _, k := range sortedKeys(dict) {
		out = append(out, dict[k])
	}
	return out
}

func repeat(count int, s string) (string, error) {
	if count < 0 || s != "" && count > maxRepeat/len(s) {
		return "", fmt.Errorf("repeat makes at most %d bytes", maxRepeat)
	}
	return strings.Repeat(s, count), nil
}

func untilStep(start, stop, step int) ([]int, error) {
	out := []int{}
	if step == 0 {
		return out, nil
	}
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if len(out) >= maxLoop {
			return nil, fmt.Errorf("until makes at most %d numbers", maxLoop)
		}
		out = append(out, i)
	}
	return out, nil
}
