package dynalite

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"golang.org/x/sync/errgroup"
)

// Names of the attributes of a table.
const (
	partitionKey = "customer"
	sortKey      = "id"
)

// batchSize is the largest number of items that BatchWriteItem takes.
const batchSize = 25

// tableTimeout bounds the wait for a new table.
const tableTimeout = time.Minute

// CreateTable creates a table whose partition key has the type of a value.
func (s *Server) CreateTable(ctx context.Context, table string, value types.AttributeValue) error {
	keyType := types.ScalarAttributeTypeS
	switch value.(type) {
	case *types.AttributeValueMemberN:
		keyType = types.ScalarAttributeTypeN
	case *types.AttributeValueMemberB:
		keyType = types.ScalarAttributeTypeB
	}
	_, err := s.Client().CreateTable(ctx, &dynamodb.CreateTableInput{TableName: &table,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String(partitionKey), AttributeType: keyType},
			{AttributeName: aws.String(sortKey), AttributeType: types.ScalarAttributeTypeN}},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String(partitionKey), KeyType: types.KeyTypeHash},
			{AttributeName: aws.String(sortKey), KeyType: types.KeyTypeRange}},
		BillingMode: types.BillingModePayPerRequest})
	if err != nil {
		return fmt.Errorf("creating table %s: %w", table, err)
	}
	return dynamodb.NewTableExistsWaiter(s.Client()).Wait(ctx, &dynamodb.DescribeTableInput{TableName: &table},
		tableTimeout)
}

// Fill adds items to a partition.
func (s *Server) Fill(ctx context.Context, table string, partition types.AttributeValue, items int) error {
	requests := make([]types.WriteRequest, items)
	for i := range requests {
		requests[i].PutRequest = &types.PutRequest{Item: map[string]types.AttributeValue{partitionKey: partition,
			sortKey: &types.AttributeValueMemberN{Value: fmt.Sprint(i)},
			"note":  &types.AttributeValueMemberS{Value: fmt.Sprintf("order %d", i)}}}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for batch := range slices.Chunk(requests, batchSize) {
		group.Go(func() error {
			out, err := s.Client().BatchWriteItem(ctx,
				&dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{table: batch}})
			if err == nil && len(out.UnprocessedItems) > 0 {
				err = fmt.Errorf("table %s did not take all items", table)
			}
			return err
		})
	}
	return group.Wait()
}

// Count returns the number of items in a partition.
func (s *Server) Count(ctx context.Context, table string, partition types.AttributeValue) (count int, err error) {
	pages := dynamodb.NewQueryPaginator(s.Client(), &dynamodb.QueryInput{TableName: &table, Select: types.SelectCount,
		ConsistentRead: aws.Bool(true), KeyConditionExpression: aws.String(partitionKey + " = :value"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":value": partition}})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return 0, err
		}
		count += int(page.Count)
	}
	return count, nil
}
