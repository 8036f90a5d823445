/* Made by tools/golden_twin.py with PyTorch 1.13.0a0: do not edit. */
static const struct golden_note golden_notes_sassnet_two[] = {
    {0, 0, "loss", 1.62899934}, {0, 0, "supervised", 0.940712816}, {0, 0, "ce", 0.766490663}, {0, 0,
    "dice", 0.863704141}, {0, 0, "distance", 0.256695582}, {0, 0, "weight", 1.01069205}, {0, 0,
    "gradient", 0.779148739}, {0, 0, "adversarial", 0.681005182}, {0, 0, "critic", 0.69363026}, {0,
    0, "critic_gradient", 0.158113212}, {0, 1, "loss", 1.6593188}, {0, 1, "supervised",
    0.971678357}, {0, 1, "ce", 0.773447869}, {0, 1, "dice", 0.887691609}, {0, 1, "distance",
    0.279955826}, {0, 1, "weight", 1.01069205}, {0, 1, "gradient", 0.808112639}, {0, 1,
    "adversarial", 0.68036594}, {0, 1, "critic", 0.695538854}, {0, 1, "critic_gradient",
    0.188547028}, {0, 2, "loss", 1.68414937}, {0, 2, "supervised", 0.997383875}, {0, 2, "ce",
    0.780624026}, {0, 2, "dice", 0.911515553}, {0, 2, "distance", 0.286227742}, {0, 2, "weight",
    1.01069205}, {0, 2, "gradient", 0.60199222}, {0, 2, "adversarial", 0.679500242}, {0, 2,
    "critic", 0.690562236}, {0, 2, "critic_gradient", 0.287273877}, {0, 3, "loss", 1.66806434}, {0,
    3, "supervised", 0.980621797}, {0, 3, "ce", 0.80941297}, {0, 3, "dice", 0.88361718}, {0, 3,
    "distance", 0.323348723}, {0, 3, "weight", 1.01069205}, {0, 3, "gradient", 0.894629528}, {0, 3,
    "adversarial", 0.680170125}, {0, 3, "critic", 0.691176376}, {0, 3, "critic_gradient",
    0.14344349}, {0, 4, "loss", 1.66901652}, {0, 4, "supervised", 0.981458562}, {0, 4, "ce",
    0.78651041}, {0, 4, "dice", 0.893629657}, {0, 4, "distance", 0.292763016}, {0, 4, "weight",
    1.01069205}, {0, 4, "gradient", 0.841661311}, {0, 4, "adversarial", 0.680284322}, {0, 4,
    "critic", 0.690544872}, {0, 4, "critic_gradient", 0.162895309}, {0, 5, "loss", 1.68221724}, {0,
    5, "supervised", 0.994041182}, {0, 5, "ce", 0.831304418}, {0, 5, "dice", 0.884567322}, {0, 5,
    "distance", 0.364912868}, {0, 5, "weight", 1.01069205}, {0, 5, "gradient", 0.929315188}, {0, 5,
    "adversarial", 0.68089589}, {0, 5, "critic", 0.69199114}, {0, 5, "critic_gradient",
    0.141424975}, {0, 6, "loss", 1.61747095}, {0, 6, "supervised", 0.929759099}, {0, 6, "ce",
    0.659323654}, {0, 6, "dice", 0.86533067}, {0, 6, "distance", 0.21476143}, {0, 6, "weight",
    1.01069205}, {0, 6, "gradient", 0.839684572}, {0, 6, "adversarial", 0.680436591}, {0, 6,
    "critic", 0.690155123}, {0, 6, "critic_gradient", 0.149478383}, {0, 7, "loss", 1.69208483}, {0,
    7, "supervised", 1.00424053}, {0, 7, "ce", 0.916775038}, {0, 7, "dice", 0.88720428}, {0, 7,
    "distance", 0.39012083}, {0, 7, "weight", 1.01069205}, {0, 7, "gradient", 1.07739533}, {0, 7,
    "adversarial", 0.680567633}, {0, 7, "critic", 0.690243458}, {0, 7, "critic_gradient",
    0.18386944}, {0, 8, "loss", 1.67626135}, {0, 8, "supervised", 0.988854304}, {0, 8, "ce",
    0.689149807}, {0, 8, "dice", 0.9039619}, {0, 8, "distance", 0.282974678}, {0, 8, "weight",
    1.01069205}, {0, 8, "gradient", 0.736472154}, {0, 8, "adversarial", 0.680135012}, {0, 8,
    "critic", 0.694148926}, {0, 8, "critic_gradient", 0.209804278}, {0, 9, "loss", 1.65606102}, {0,
    9, "supervised", 0.967191895}, {0, 9, "ce", 0.780681835}, {0, 9, "dice", 0.880424473}, {0, 9,
    "distance", 0.289224738}, {0, 9, "weight", 1.01069205}, {0, 9, "gradient", 0.59126744}, {0, 9,
    "adversarial", 0.681581616}, {0, 9, "critic", 0.692971491}, {0, 9, "critic_gradient",
    0.242313645}
};
static const struct golden_note golden_notes_sassnet_three[] = {
    {0, 0, "loss", 0.937207703}, {0, 0, "supervised", 0.928291367}, {0, 0, "ce", 1.08020842}, {0, 0,
    "dice", 0.90203189}, {0, 0, "distance", 0.0875315923}, {0, 0, "weight", 0.013475894}, {0, 0,
    "gradient", 0.158406227}, {0, 0, "adversarial", 0.661650762}, {0, 0, "critic", 0.679409479}, {0,
    0, "critic_gradient", 0.321235208}, {0, 1, "loss", 0.984838373}, {0, 1, "supervised",
    0.961789241}, {0, 1, "ce", 1.2269519}, {0, 1, "dice", 0.912528592}, {0, 1, "distance",
    0.164202163}, {0, 1, "weight", 0.0348447493}, {0, 1, "gradient", 1.94097639}, {0, 1,
    "adversarial", 0.661480792}, {0, 1, "critic", 0.682980979}, {0, 1, "critic_gradient",
    0.264795639}, {0, 2, "loss", 1.04056942}, {0, 2, "supervised", 0.986745562}, {0, 2, "ce",
    1.2502882}, {0, 2, "dice", 0.934043313}, {0, 2, "distance", 0.175674164}, {0, 2, "weight",
    0.081524408}, {0, 2, "gradient", 0.540858503}, {0, 2, "adversarial", 0.660217741}, {0, 2,
    "critic", 0.682044693}, {0, 2, "critic_gradient", 0.274926266}, {0, 3, "loss", 1.11254873}, {0,
    3, "supervised", 0.998488514}, {0, 3, "ce", 1.26878363}, {0, 3, "dice", 0.919893825}, {0, 3,
    "distance", 0.261982298}, {0, 3, "weight", 0.172587173}, {0, 3, "gradient", 1.4031416}, {0, 3,
    "adversarial", 0.660884667}, {0, 3, "critic", 0.681621914}, {0, 3, "critic_gradient",
    0.273842789}, {0, 4, "loss", 1.21729562}, {0, 4, "supervised", 0.999755427}, {0, 4, "ce",
    1.23344035}, {0, 4, "dice", 0.943621911}, {0, 4, "distance", 0.187111718}, {0, 4, "weight",
    0.330597776}, {0, 4, "gradient", 1.11394959}, {0, 4, "adversarial", 0.658020739}, {0, 4,
    "critic", 0.681529476}, {0, 4, "critic_gradient", 0.278932383}, {0, 5, "loss", 1.36180149}, {0,
    5, "supervised", 0.984934987}, {0, 5, "ce", 1.29087524}, {0, 5, "dice", 0.906095629}, {0, 5,
    "distance", 0.262797859}, {0, 5, "weight", 0.573009594}, {0, 5, "gradient", 1.4775192}, {0, 5,
    "adversarial", 0.65769668}, {0, 5, "critic", 0.683056868}, {0, 5, "critic_gradient",
    0.265374382}, {0, 6, "loss", 1.52852475}, {0, 6, "supervised", 0.9387444}, {0, 6, "ce",
    1.08163695}, {0, 6, "dice", 0.910965526}, {0, 6, "distance", 0.0925962457}, {0, 6, "weight",
    0.898657928}, {0, 6, "gradient", 0.299261}, {0, 6, "adversarial", 0.65629015}, {0, 6, "critic",
    0.678945454}, {0, 6, "critic_gradient", 0.306848902}, {0, 7, "loss", 1.79969828}, {0, 7,
    "supervised", 0.96307298}, {0, 7, "ce", 1.19462077}, {0, 7, "dice", 0.914080067}, {0, 7,
    "distance", 0.163309711}, {0, 7, "weight", 1.2752563}, {0, 7, "gradient", 1.11550705}, {0, 7,
    "adversarial", 0.656044829}, {0, 7, "critic", 0.678746169}, {0, 7, "critic_gradient",
    0.326357051}, {0, 8, "loss", 2.04490261}, {0, 8, "supervised", 0.971497503}, {0, 8, "ce",
    1.23810217}, {0, 8, "dice", 0.916130305}, {0, 8, "distance", 0.184557328}, {0, 8, "weight",
    1.63746151}, {0, 8, "gradient", 1.34941906}, {0, 8, "adversarial", 0.655529979}, {0, 8,
    "critic", 0.679903313}, {0, 8, "critic_gradient", 0.279309812}, {0, 9, "loss", 2.20930566}, {0,
    9, "supervised", 0.963300055}, {0, 9, "ce", 1.07962081}, {0, 9, "dice", 0.935288493}, {0, 9,
    "distance", 0.0933718739}, {0, 9, "weight", 1.90245885}, {0, 9, "gradient", 0.206545264}, {0, 9,
    "adversarial", 0.654944837}, {0, 9, "critic", 0.682939718}, {0, 9, "critic_gradient",
    0.268425383}
};
static const struct golden_run golden_runs_sassnet[] = {
    {.name = "sassnet_two", .classes = 2, .channels = 1, .has_mask = 1, .labeled = 5, .unlabeled = 6,
     .notes = golden_notes_sassnet_two, .n_notes = 100, .prototypes = NULL,
     .set = {.method = (char[]){"sassnet"}, .seed = 81, .steps = 10, .patch = {32, 32, 16}, .batch =
             4, .labeled_batch = 2, .filters = 2, .dropout = NET_DROPOUT_BOTH, .augment =
             AUGMENT_CROP, .dice_share = 0.5, .optimizer = OPTIM_SGD, .schedule = SCHEDULE_STEP, .lr
             = 0.0002, .momentum = 0.9, .weight_decay = 0.1, .clip = 0.0, .ema_decay = 0.99,
             .consistency = 150.0, .teacher_noise = 0.1, .ramp = RAMP_STEPS, .sup_dice = 1,
             .ssn_rank = 8, .mc_samples = 6, .ged_metric = GED_CLASS_MEAN, .head_norm = 0, .nb_rule
             = NB_CENTRED, .bcl_layout = BCL_CORRECT, .bcl_reduce = BCL_MEAN, .bcl_cap = 150,
             .lambda_c = 0.09, .bcl_tau = 0.07, .proto_ckpt = PROTO_LAST, .proto_update = 1,
             .lambda_r = 0.1, .pcl_tau = 100.0, .pcl_ignore_bg = 1, .pcl_cov = PCL_DIAGONAL,
             .pseudo_weight = 1.0, .pseudo_threshold = 0.0, .stage2_init = STAGE2_FRESH, .stage2_cov
             = 0, .stage2_paste = 0, .stage2_share = 1.0, .stages = 2, .paste_size =
             0.6666666666666666, .paste_weight = 0.5}},
    {.name = "sassnet_three", .classes = 3, .channels = 2, .has_mask = 1, .labeled = 5, .unlabeled = 6,
     .notes = golden_notes_sassnet_three, .n_notes = 100, .prototypes = NULL,
     .set = {.method = (char[]){"sassnet"}, .seed = 82, .steps = 10, .patch = {32, 16, 32}, .batch =
             3, .labeled_batch = 2, .filters = 2, .dropout = NET_DROPOUT_BOTH, .augment =
             AUGMENT_CROP, .dice_share = 0.5, .optimizer = OPTIM_SGD, .schedule = SCHEDULE_POLY, .lr
             = 0.0001, .momentum = 0.9, .weight_decay = 0.1, .clip = 0.0, .ema_decay = 0.99,
             .consistency = 2.0, .teacher_noise = 0.1, .ramp = RAMP_CONTINUOUS, .sup_dice = 1,
             .ssn_rank = 8, .mc_samples = 6, .ged_metric = GED_CLASS_MEAN, .head_norm = 0, .nb_rule
             = NB_CENTRED, .bcl_layout = BCL_CORRECT, .bcl_reduce = BCL_MEAN, .bcl_cap = 150,
             .lambda_c = 0.09, .bcl_tau = 0.07, .proto_ckpt = PROTO_LAST, .proto_update = 1,
             .lambda_r = 0.1, .pcl_tau = 100.0, .pcl_ignore_bg = 1, .pcl_cov = PCL_DIAGONAL,
             .pseudo_weight = 1.0, .pseudo_threshold = 0.0, .stage2_init = STAGE2_FRESH, .stage2_cov
             = 0, .stage2_paste = 0, .stage2_share = 1.0, .stages = 2, .paste_size =
             0.6666666666666666, .paste_weight = 0.5}},
};
