package codec

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"regexp"
	"unicode/utf16"

	"go.yaml.in/yaml/v3"
)

// Credentials of key services, in the form that Flux reads.

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
	if !isHeaderValue(c.ID+c.Secret+c.Token) || c.ID == "" || c.Secret == "" {
		return nil, invalid("needs aws_access_key_id and aws_secret_access_key")
	}
	return c, nil
}

// azureCredentials are the credentials of a service principal, with the keys of Flux or those of
// az.
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
	if err := yaml.Unmarshal(toUTF8(value), c); err != nil {
		return nil, invalid("is not YAML or JSON with tenantId, clientId and clientSecret")
	}
	if c.ClientSecret == "" && c.Password != "" {
		c.TenantID, c.ClientID, c.ClientSecret = c.Tenant, c.AppID, c.Password
	}
	switch {
	case c.ClientSecret == "" && c.Certificate != "":
		return nil, invalid("has a clientCertificate, which is not supported: set clientSecret")
	case c.ClientSecret == "" && c.ClientID != "":
		return nil, invalid("requests a managed identity, " +
			"which is not supported: set tenantId, clientId and clientSecret")
	case !azureID.MatchString(c.TenantID) || c.ClientID == "" || c.ClientSecret == "":
		return nil, invalid("needs tenantId, clientId and clientSecret")
	}
	return c, nil
}

// toUTF8 converts text that az may have written in UTF-16, and removes a byte order mark.
func toUTF8(b []byte) []byte {
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

// readGCP accepts only the key of a service account of Google. Other types of credentials reference
// a file, a program or an address.
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
		return nil, invalid("has credentials of type %s: only service_account is allowed, other types could run "+
			"programs or read files", sanitize(c.Type))
	case c.Email == "":
		return nil, invalid("is not the JSON key of a service account: it needs client_email and private_key")
	case c.Universe != "" && c.Universe != "googleapis.com":
		return nil, invalid("has universe_domain %s: only googleapis.com is allowed", sanitize(c.Universe))
	case c.TokenURI != "" && !googleTokenURL.MatchString(c.TokenURI):
		return nil, invalid("has token_uri %s: only addresses below googleapis.com are allowed", sanitize(c.TokenURI))
	}
	return value, nil
}

var googleTokenURL = regexp.MustCompile(`^https://([a-z0-9-]+\.)*googleapis\.com/`)
