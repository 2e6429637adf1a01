package codec

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"regexp"

	"github.com/getsops/sops/v3/keyservice"
	"github.com/huaweicloud/huaweicloud-sdk-go-v3/core"
	"github.com/huaweicloud/huaweicloud-sdk-go-v3/core/auth"
	"github.com/huaweicloud/huaweicloud-sdk-go-v3/core/config"
	huawei "github.com/huaweicloud/huaweicloud-sdk-go-v3/services/kms/v2"
	"github.com/huaweicloud/huaweicloud-sdk-go-v3/services/kms/v2/model"
	"go.yaml.in/yaml/v3"

	"github.com/ksctl/gitops/stacks/sops"
)

type huaweiCredentials struct {
	AccessKey string `yaml:"access_key"`
	SecretKey string `yaml:"secret_key"`
	Token     string `yaml:"security_token"`
	Project   string `yaml:"project_id"`
}

// huaweiProject becomes a part of a path.
var huaweiProject = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// readHuawei wants the project as well: without it the SDK would ask another service for it.
func readHuawei(value []byte) (*huaweiCredentials, error) {
	c := new(huaweiCredentials)
	if err := yaml.Unmarshal(value, c); err != nil {
		return nil, invalid("is not YAML or JSON with access_key, secret_key and project_id")
	}
	if !printable(c.AccessKey+c.SecretKey+c.Token) || c.AccessKey == "" || c.SecretKey == "" || !huaweiProject.MatchString(c.Project) {
		return nil, invalid("needs access_key, secret_key and project_id")
	}
	return c, nil
}

// huaweiKey is a region and a key there. The region becomes a part of a host's name.
var huaweiKey = regexp.MustCompile(`^([a-z]{2}-[a-z]{2,20}-[0-9]{1,4}):([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$`)

// huaweiHost is made here: the SDK would take other hosts from the environment and from a file.
func huaweiHost(region string) string {
	domain := ".myhuaweicloud.com"
	if region == "eu-west-101" { // a cloud of its own
		domain = ".myhuaweicloud.eu"
	}
	return "kms." + region + domain
}

// openHuawei asks through Huawei's SDK: the library's own use of that can be given no
// client and no context.
func (a *attempt) openHuawei(ctx context.Context, k *keyservice.HckmsKey, sealed []byte) ([]byte, error) {
	id := huaweiKey.FindStringSubmatch(k.KeyId)
	if id == nil {
		return nil, fail(sops.AddressRefused, "that is no region and ID of a key (region:uuid)")
	}
	host := huaweiHost(id[1])
	guarded := oneHost{a.opts.client(nil).Transport, host}
	c := a.keys.huawei
	client, err := core.NewHcHttpClientBuilder().
		// Not by the SDK's builder of credentials, which knows where a machine has some.
		WithCredential(&auth.BasicCredentials{BaseCredentials: auth.BaseCredentials{AK: c.AccessKey, SK: c.SecretKey, SecurityToken: c.Token}, ProjectId: c.Project}).
		WithEndpoint("https://" + host).
		WithHttpConfig(config.DefaultHttpConfig().
			WithHttpRoundTripper(roundTripper(func(r *http.Request) (*http.Response, error) { return guarded.RoundTrip(r.WithContext(ctx)) })).
			WithTimeout(a.opts.Limits.RequestTimeout).
			WithUserAgent("ksctl-gitops")). // without one the SDK makes a file in the home directory
		SafeBuild()
	if err != nil {
		return nil, err
	}
	algorithm := model.GetDecryptDataRequestBodyEncryptionAlgorithmEnum().SYMMETRIC_DEFAULT
	answer, err := huawei.NewKmsClient(client).DecryptData(&model.DecryptDataRequest{
		Body: &model.DecryptDataRequestBody{CipherText: string(sealed), EncryptionAlgorithm: &algorithm, KeyId: &id[2]},
	})
	if err != nil {
		return nil, err
	}
	if answer.PlainText == nil {
		return nil, errors.New("huawei: no plain text")
	}
	return base64.StdEncoding.DecodeString(*answer.PlainText)
}

// roundTripper is a function as a http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
