-- Renews read holds.
return renew(renew_reader)
