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

// openGCP asks over REST: gRPC, which the library prefers, would make connections of its own.
func (a *attempt) openGCP(ctx context.Context, k *keyservice.GcpKmsKey, sealed []byte) ([]byte, error) {
	if !gcpResource.MatchString(k.ResourceId) {
		return nil, fail(sops.AddressRefused, "that is no name of a key (projects/…/locations/…/keyRings/…/cryptoKeys/…)")
	}
	account, err := google.JWTConfigFromJSON(a.keys.gcp, gcpScope)
	if err != nil {
		return nil, err
	}
	guarded := a.opts.client(nil)
	tokens := account.TokenSource(context.WithValue(ctx, oauth2.HTTPClient, guarded))
	client := *guarded
	client.Timeout = 0 // ctx has it
	// One host: the library lets the environment name another.
	client.Transport = oneHost{&oauth2.Transport{Source: tokens, Base: guarded.Transport}, gcpHost}
	key := gcpkms.MasterKey{ResourceID: k.ResourceId, EncryptedKey: string(sealed)}
	gcpkms.NewTokenSource(tokens).ApplyToMasterKey(&key) // without it the library looks for credentials in the environment
	gcpkms.UseRESTClient{}.ApplyToMasterKey(&key)
	gcpkms.ClientOptions{option.WithHTTPClient(&client)}.ApplyToMasterKey(&key)
	return key.DecryptContext(ctx)
}
