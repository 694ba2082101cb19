package nest
