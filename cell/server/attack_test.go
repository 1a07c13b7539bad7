package server

func second[T any](_ T, err error) error { return err }
