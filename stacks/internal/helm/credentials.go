package helm

import (
	"crypto/ed25519"
	cryptorand "crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"math/rand/v2"
	"reflect"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig/v3"

	"github.com/ksctl/gitops/stacks/generated"
)

// certificate is what Helm's certificate functions return.
type certificate struct {
	Cert string
	Key  string
}

// sprigFuncs are Helm's implementations of template functions.
var sprigFuncs = sprig.TxtFuncMap()

// callSprig calls one of Helm's certificate functions. Their type for a certificate cannot be named
// outside of the library.
func callSprig(function string, arguments ...any) (certificate, error) {
	fn := reflect.ValueOf(sprigFuncs[function])
	in := make([]reflect.Value, len(arguments))
	for i, a := range arguments {
		in[i] = reflect.ValueOf(a).Convert(fn.Type().In(i))
	}
	out := fn.Call(in)
	err, _ := out[1].Interface().(error)
	c, _ := out[0].Convert(reflect.TypeFor[certificate]()).Interface().(certificate)
	return c, err
}

// credentialFuncs returns the functions that make keys, certificates and salted hashes.
func (g *generator) credentialFuncs() template.FuncMap {
	return template.FuncMap{
		"genPrivateKey": g.privateKey,
		"genCA":         func(cn string, days int) (certificate, error) { return g.issue("genCA", cn, days) },
		"genCAWithKey": func(cn string, days int, key string) (certificate, error) {
			return g.issue("genCAWithKey", cn, days, key)
		},
		"genSelfSignedCert": func(cn string, ips, dns []any, days int) (certificate, error) {
			return g.issue("genSelfSignedCert", cn, ips, dns, days)
		},
		"genSelfSignedCertWithKey": func(cn string, ips, dns []any, days int, key string) (certificate, error) {
			return g.issue("genSelfSignedCertWithKey", cn, ips, dns, days, key)
		},
		"genSignedCert": func(cn string, ips, dns []any, days int, ca certificate) (certificate, error) {
			return g.issue("genSignedCert", cn, ips, dns, days, ca)
		},
		"genSignedCertWithKey": func(cn string, ips, dns []any, days int, ca certificate,
			key string) (certificate, error) {
			return g.issue("genSignedCertWithKey", cn, ips, dns, days, ca, key)
		},
		"buildCustomCert": func(cert, key string) (certificate, error) {
			return callSprig("buildCustomCert", cert, key)
		},
		"bcrypt":     func(password string) (string, error) { return g.salted("bcrypt", "", password) },
		"htpasswd":   g.htpasswd,
		"encryptAES": g.encryptAES,
	}
}

// credential returns a value that cannot be derived. placeholder makes what only looks like it.
func (g *generator) credential(function, arguments string, byArguments bool,
	placeholder func(*rand.ChaCha8) (generated.Value, error),
	generate func() (generated.Value, error)) (generated.Value, error) {
	if g.Policy == generated.Refuse {
		g.note(g.refused, function)
		return placeholder(g.derive(function))
	}
	return g.value(function, arguments, byArguments, func(source *rand.ChaCha8) (generated.Value, error) {
		if g.Policy == generated.Placeholders {
			return placeholder(source)
		}
		return generate()
	})
}

func (g *generator) privateKey(kind string) (string, error) {
	v, err := g.credential("genPrivateKey", kind, false, func(source *rand.ChaCha8) (generated.Value, error) {
		v, err := placeholderCertificate(source, "")
		return generated.Value{Text: v.PrivateKey}, err
	}, func() (generated.Value, error) {
		text := helmString("genPrivateKey", kind)
		if !strings.HasPrefix(text, "-----BEGIN") { // Helm renders its errors
			return generated.Value{}, fmt.Errorf("genPrivateKey: %s", text)
		}
		return generated.Value{Text: text}, nil
	})
	return v.Text, err
}

// helmString calls a function of Helm that takes and returns a string.
func helmString(function, argument string) string {
	fn, _ := sprigFuncs[function].(func(string) string)
	return fn(argument)
}

// issue returns a certificate. Other arguments, and another authority, give another one.
func (g *generator) issue(function, cn string, others ...any) (certificate, error) {
	arguments := append([]any{cn}, others...)
	raw, err := json.Marshal(arguments)
	if err != nil {
		return certificate{}, fmt.Errorf("%s: %w", function, err)
	}
	v, err := g.credential(function, string(raw), true, func(source *rand.ChaCha8) (generated.Value, error) {
		return placeholderCertificate(source, cn)
	},
		func() (generated.Value, error) {
			g.writeCertificates() // an authority that stays as it is in the cluster has not signed this one
			c, err := callSprig(function, arguments...)
			return generated.Value{Text: c.Cert, PrivateKey: c.Key}, err
		})
	return certificate{Cert: v.Text, Key: v.PrivateKey}, err
}

// writeCertificates clears StaysLive of all certificates, so that they are written.
func (g *generator) writeCertificates() {
	for call, v := range g.out.Calls {
		if v.StaysLive && v.PrivateKey != "" {
			v.StaysLive = false
			g.out.Calls[call] = v
		}
	}
}

// placeholderCertificate returns a certificate and its key that depend only on source. Others may
// read the key: they are only to be parsed.
func placeholderCertificate(source *rand.ChaCha8, cn string) (generated.Value, error) {
	seed := make([]byte, ed25519.SeedSize)
	_, _ = source.Read(seed) // never fails
	key := ed25519.NewKeyFromSeed(seed)
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return generated.Value{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: cn},
		NotBefore: placeholderTime, NotAfter: placeholderTime.AddDate(100, 0, 0),
		IsCA: true, BasicConstraintsValid: true}
	// ed25519 needs no random numbers
	der, err := x509.CreateCertificate(cryptorand.Reader, template, template, key.Public(), key)
	if err != nil {
		return generated.Value{}, err
	}
	return generated.Value{Text: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		PrivateKey: string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}))}, nil
}

// salted returns the bcrypt hash of a password, after a prefix.
func (g *generator) salted(function, prefix, password string) (string, error) {
	v, err := g.credential(function, prefix+"\x00"+password, true, func(source *rand.ChaCha8) (generated.Value, error) {
		return generated.Value{Text: prefix + "$2a$10$" + randomString(source, 53, alphanumeric)}, nil
	}, func() (generated.Value, error) {
		return generated.Value{Text: prefix + helmString("bcrypt", password)}, nil
	})
	return v.Text, err
}

func (g *generator) htpasswd(user, password string) (string, error) {
	if strings.Contains(user, ":") {
		return "invalid username: " + user, nil // as Helm
	}
	return g.salted("htpasswd", user+":", password)
}

func (g *generator) encryptAES(password, plaintext string) (string, error) {
	if plaintext == "" {
		return "", nil
	}
	v, err := g.credential("encryptAES", password+"\x00"+
		plaintext, true, func(source *rand.ChaCha8) (generated.Value, error) {
		return generated.Value{Text: base64.StdEncoding.EncodeToString(randomBytes(source, (len(plaintext)/16+2)*16))},
			nil
	}, func() (generated.Value, error) {
		fn, _ := sprigFuncs["encryptAES"].(func(string, string) (string, error))
		text, err := fn(password, plaintext)
		return generated.Value{Text: text}, err
	})
	return v.Text, err
}
