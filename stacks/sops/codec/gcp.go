package codec

import (
	"context"
	"regexp"

	"github.com/getsops/sops/v3/gcpkms"
	"github.com/getsops/sops/v3/keyservice"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
	"google.golang.org/api/option"

	"github.com/ksctl/gitops/stacks/sops"
)

const (
	gcpHost  = "cloudkms.googleapis.com"
	gcpScope = "https://www.googleapis.com/auth/cloudkms"
)

var gcpResource = regexp.MustCompile(`^projects/[a-zA-Z0-9.:-]{1,128}/locations/[a-z0-9-]{1,63}/keyRings/[a-zA-Z0-9_-]{1,63}/cryptoKeys/[a-zA-Z0-9_-]{1,63}$`)

// decryptGCP decrypts with GCP KMS over REST. gRPC, which the library prefers, would open
// connections that bypass the guarded client.
func (a *keyResolver) decryptGCP(ctx context.Context, k *keyservice.GcpKmsKey, ciphertext []byte) ([]byte, error) {
	if !gcpResource.MatchString(k.ResourceId) {
		return nil, newError(sops.AddressRefused,
			"the resource ID is not the name of a key (projects/…/locations/…/keyRings/…/cryptoKeys/…)")
	}
	account, err := google.JWTConfigFromJSON(a.keys.gcp, gcpScope)
	if err != nil {
		return nil, err
	}
	guarded := a.opts.httpClient(nil)
	tokens := account.TokenSource(context.WithValue(ctx, oauth2.HTTPClient, guarded))
	client := *guarded
	client.Timeout = 0 // ctx has the deadline
	// Only one host is allowed, because the library can take another one from the environment.
	client.Transport = singleHost{&oauth2.Transport{Source: tokens, Base: guarded.Transport}, gcpHost}
	key := gcpkms.MasterKey{ResourceID: k.ResourceId, EncryptedKey: string(ciphertext)}
	gcpkms.NewTokenSource(tokens).ApplyToMasterKey(&key) // otherwise the library reads credentials from the environment
	gcpkms.UseRESTClient{}.ApplyToMasterKey(&key)
	gcpkms.ClientOptions{option.WithHTTPClient(&client)}.ApplyToMasterKey(&key)
	return key.DecryptContext(ctx)
}
