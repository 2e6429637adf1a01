package codec

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"regexp"
	"unicode/utf16"

	"go.yaml.in/yaml/v3"
)

// Credentials of key services, in the form that Flux takes them.

type awsCredentials struct {
	ID     string `yaml:"aws_access_key_id"`
	Secret string `yaml:"aws_secret_access_key"`
	Token  string `yaml:"aws_session_token"`
}

func readAWS(value []byte) (*awsCredentials, error) {
	c := new(awsCredentials)
	if err := yaml.Unmarshal(value, c); err != nil {
		return nil, invalid("is not YAML with aws_access_key_id and aws_secret_access_key")
	}
	if !printable(c.ID+c.Secret+c.Token) || c.ID == "" || c.Secret == "" {
		return nil, invalid("needs aws_access_key_id and aws_secret_access_key")
	}
	return c, nil
}

// azureCredentials are those of a service principal, in either spelling.
type azureCredentials struct {
	TenantID      string `yaml:"tenantId"`
	ClientID      string `yaml:"clientId"`
	ClientSecret  string `yaml:"clientSecret"`
	Certificate   string `yaml:"clientCertificate"`
	AuthorityHost string `yaml:"authorityHost"`
	Tenant        string `yaml:"tenant"`
	AppID         string `yaml:"appId"`
	Password      string `yaml:"password"`
}

var azureID = regexp.MustCompile(`^[a-zA-Z0-9.-]{1,255}$`)

func readAzure(value []byte) (*azureCredentials, error) {
	c := new(azureCredentials)
	if err := yaml.Unmarshal(utf8Of(value), c); err != nil {
		return nil, invalid("is not YAML or JSON with tenantId, clientId and clientSecret")
	}
	if c.ClientSecret == "" && c.Password != "" {
		c.TenantID, c.ClientID, c.ClientSecret = c.Tenant, c.AppID, c.Password
	}
	switch {
	case c.ClientSecret == "" && c.Certificate != "":
		return nil, invalid("holds a clientCertificate, which can't be used here: give a clientSecret")
	case c.ClientSecret == "" && c.ClientID != "":
		return nil, invalid("names a managed identity of the machine, which is not used: give tenantId, clientId and clientSecret")
	case !azureID.MatchString(c.TenantID) || c.ClientID == "" || c.ClientSecret == "":
		return nil, invalid("needs tenantId, clientId and clientSecret")
	}
	return c, nil
}

// utf8Of is text that az may have written in UTF-16, or with a byte order mark.
func utf8Of(b []byte) []byte {
	var order binary.ByteOrder = binary.LittleEndian
	switch {
	case bytes.HasPrefix(b, []byte("\xef\xbb\xbf")):
		return b[3:]
	case bytes.HasPrefix(b, []byte("\xfe\xff")):
		order = binary.BigEndian
	case bytes.HasPrefix(b, []byte("\xff\xfe")):
	default:
		return b
	}
	var units []uint16
	for b = b[2:]; len(b) > 1; b = b[2:] {
		units = append(units, order.Uint16(b))
	}
	return []byte(string(utf16.Decode(units)))
}

// readGCP takes the key of a service account of Google alone. Other kinds of credentials
// name a file, a program or an address to get the real ones from.
func readGCP(value []byte) ([]byte, error) {
	var c struct {
		Type     string `json:"type"`
		Email    string `json:"client_email"`
		TokenURI string `json:"token_uri"`
		Universe string `json:"universe_domain"`
	}
	if err := json.Unmarshal(value, &c); err != nil {
		return nil, invalid("is not the JSON key of a service account")
	}
	switch {
	case c.Type != "service_account":
		return nil, invalid("holds credentials of the type %s; only service_account is taken, for others would run programs or read files here", shown(c.Type))
	case c.Email == "":
		return nil, invalid("is not the JSON key of a service account: it needs client_email and private_key")
	case c.Universe != "" && c.Universe != "googleapis.com":
		return nil, invalid("has the universe_domain %s, which is not Google's", shown(c.Universe))
	case c.TokenURI != "" && !googleTokens.MatchString(c.TokenURI):
		return nil, invalid("has the token_uri %s, which is not Google's", shown(c.TokenURI))
	}
	return value, nil
}

var googleTokens = regexp.MustCompile(`^https://([a-z0-9-]+\.)*googleapis\.com/`)
