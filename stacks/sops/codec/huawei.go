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

// huaweiProject matches a project ID. The ID becomes part of a URL path.
var huaweiProject = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// readHuawei reads the credentials. The project is required, because without it the SDK would
// request it from another service.
func readHuawei(value []byte) (*huaweiCredentials, error) {
	c := new(huaweiCredentials)
	if err := yaml.Unmarshal(value, c); err != nil {
		return nil, invalid("is not YAML or JSON with access_key, secret_key and project_id")
	}
	if !isHeaderValue(c.AccessKey+c.SecretKey+c.Token) || c.AccessKey == "" || c.SecretKey == "" ||
		!huaweiProject.MatchString(c.Project) {
		return nil, invalid("needs access_key, secret_key and project_id")
	}
	return c, nil
}

// huaweiKey matches a region and the ID of a key. The region becomes part of a host name.
var huaweiKey = regexp.MustCompile(`^([a-z]{2}-[a-z]{2,20}-[0-9]{1,4}):([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$`)

// huaweiHost returns the KMS host of a region. The SDK is not used for this, because it can take
// hosts from the environment and from a file.
func huaweiHost(region string) string {
	domain := ".myhuaweicloud.com"
	if region == "eu-west-101" { // a separate cloud
		domain = ".myhuaweicloud.eu"
	}
	return "kms." + region + domain
}

// decryptHuawei decrypts with the SDK of Huawei Cloud directly, because the SOPS library accepts
// neither an HTTP client nor a context for it.
func (a *keyResolver) decryptHuawei(ctx context.Context, k *keyservice.HckmsKey, ciphertext []byte) ([]byte, error) {
	id := huaweiKey.FindStringSubmatch(k.KeyId)
	if id == nil {
		return nil, newError(sops.AddressRefused, "the key ID is not a region and a UUID (region:uuid)")
	}
	host := huaweiHost(id[1])
	guarded := singleHost{a.opts.httpClient(nil).Transport, host}
	c := a.keys.huawei
	client, err := core.NewHcHttpClientBuilder().
		// The credentials builder of the SDK is not used, because it finds credentials of the
		// machine.
		WithCredential(&auth.BasicCredentials{BaseCredentials: auth.BaseCredentials{AK: c.AccessKey, SK: c.SecretKey,
			SecurityToken: c.Token}, ProjectId: c.Project}).
		WithEndpoint("https://" + host).
		WithHttpConfig(config.DefaultHttpConfig().
			WithHttpRoundTripper(roundTripperFunc(func(r *http.Request) (*http.Response, error) {
				return guarded.RoundTrip(r.WithContext(ctx))
			})).
			WithTimeout(a.opts.requestTimeout).
			WithUserAgent("ksctl-gitops")). // otherwise the SDK creates a file in the home directory
		SafeBuild()
	if err != nil {
		return nil, err
	}
	algorithm := model.GetDecryptDataRequestBodyEncryptionAlgorithmEnum().SYMMETRIC_DEFAULT
	response, err := huawei.NewKmsClient(client).DecryptData(&model.DecryptDataRequest{
		Body: &model.DecryptDataRequestBody{CipherText: string(ciphertext), EncryptionAlgorithm: &algorithm,
			KeyId: &id[2]},
	})
	if err != nil {
		return nil, err
	}
	if response.PlainText == nil {
		return nil, errors.New("huawei: response without plain text")
	}
	return base64.StdEncoding.DecodeString(*response.PlainText)
}

// roundTripperFunc is a function that implements http.RoundTripper.
type roundTripperFunc func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
